// Builds elements. Text only ever becomes text nodes and attributes: nothing of an event is parsed as HTML.

/**
 * An element. `props`: `class`, `text`, `on` {event: handler}, `data` {name: value}, all else attributes; null is left
 * out, true is an attribute without a value.
 */
export function el(tag, props = {}, ...children) {
  const node = document.createElement(tag);
  for (const [name, value] of Object.entries(props)) {
    if (value === null || value === undefined || value === false) continue;
    if (name === "class") node.className = value;
    else if (name === "text") node.textContent = value;
    else if (name === "on") for (const [event, handler] of Object.entries(value)) node.addEventListener(event, handler);
    else if (name === "data") Object.assign(node.dataset, value);
    else node.setAttribute(name, value === true ? "" : String(value));
  }
  node.append(...children.filter((child) => child !== null && child !== undefined));
  return node;
}

/** Sets the text where it differs: what is unchanged keeps the reader's selection. */
export function setText(node, text) {
  if (node.textContent !== text) node.textContent = text;
}

/** Makes a part anew only when what it shows has changed, so that focus, scroll and selection survive the updates. */
export function whenChanged(build) {
  let last;
  return (subject, ...others) => {
    const now = JSON.stringify(subject);
    if (now === last) return false;
    last = now;
    build(subject, ...others);
    return true;
  };
}

/** The rows of a list by key: those that stay are kept as they are, in the new order. */
export function keyedRows(parent, items, keyOf, make) {
  const old = new Map([...parent.children].map((node) => [node.dataset.key, node]));
  const rows = items.map((item) => {
    const key = String(keyOf(item));
    const node = old.get(key) ?? make(item);
    node.dataset.key = key;
    return node;
  });
  if (rows.length !== parent.children.length || rows.some((node, i) => parent.children[i] !== node)) {
    for (const [i, node] of rows.entries()) {
      if (parent.children[i] !== node) parent.insertBefore(node, parent.children[i] ?? null);
    }
    while (parent.children.length > rows.length) parent.lastElementChild.remove();
  }
}

/** A table with a caption for screen readers; cells are texts or nodes. */
export function table(caption, head, rows, { numeric = [] } = {}) {
  const side = (i) => (numeric.includes(i) ? "number" : null);
  return el(
    "table",
    {},
    el("caption", { class: "visually-hidden", text: caption }),
    el("thead", {}, el("tr", {}, ...head.map((text, i) => el("th", { scope: "col", class: side(i), text })))),
    el("tbody", {}, ...rows.map((row) => el("tr", {}, ...row.map((cell, i) => el("td", { class: side(i) }, cell))))),
  );
}
