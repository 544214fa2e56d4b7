// Viewers have the theme of the site, not that of the system: each has a file for either.
function paint() {
  const theme = document.documentElement.dataset.theme === "dark" ? "dark" : "light";
  for (const frame of document.querySelectorAll("iframe.regard-view")) {
    const address = frame.src.replace(/-(light|dark)\.html.*$/, `-${theme}.html`);
    if (frame.src === address) continue;
    // In a frame that is still waiting for its first file, this one could win over the second.
    const other = frame.cloneNode();
    other.src = address;
    frame.replaceWith(other);
  }
}

paint();
new MutationObserver(paint).observe(document.documentElement, { attributeFilter: ["data-theme"] });
