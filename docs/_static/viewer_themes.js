// Viewers have the theme of the site, not that of the system: the fragment of their address says which.
const loaded = new WeakSet();

function paint(frame) {
  const address = `${frame.src.split("#")[0]}#theme=${document.documentElement.dataset.theme === "dark" ? "dark" : "light"}`;
  if (loaded.has(frame)) frame.contentWindow.location.replace(address);
  else frame.src = address;
}

for (const frame of document.querySelectorAll("iframe.regard-view")) {
  frame.addEventListener("load", () => loaded.add(frame));
  paint(frame);
}
new MutationObserver(() => document.querySelectorAll("iframe.regard-view").forEach(paint))
  .observe(document.documentElement, { attributeFilter: ["data-theme"] });
