// Applies the kept theme before the first paint: a classic script in the head, since modules run after it.
try {
  const kept = localStorage.getItem("rollbook-theme");
  if (kept === "light" || kept === "dark") document.documentElement.dataset.theme = kept;
} catch {
  // Storage may be switched off; then the system's theme holds.
}
