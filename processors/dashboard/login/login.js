// What the link named, such as #run=..., goes along: a form's own address has no fragment, and the answer leads to the page.
for (const form of document.forms) {
  form.addEventListener("submit", () => {
    form.action = `login${location.hash}`;
  });
}
