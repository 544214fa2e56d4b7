// Viewers have the theme of the site, not that of the system: the fragment of their address says which.
function paint() {
  const theme = document.documentElement.dataset.theme === "dark" ? "dark" : "light";
  for (const frame of document.querySelectorAll("iframe.regard-view")) {
    const address = `${frame.src.split("#")[0]}#theme=${theme}`;
    if (frame.src !== address) frame.src = address;
  }
}

paint();
new MutationObserver(paint).observe(document.documentElement, { attributeFilter: ["data-theme"] });
