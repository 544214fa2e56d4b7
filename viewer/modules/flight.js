// @ts-check

const LENGTH = 280; // milliseconds

const MOST = 24;

/** Where the numbers of a card stand that go on, by their names. */
export const outgoing = (card) => new Map([...card.querySelectorAll("[data-out]")].map((one) => [one.dataset.out, one.getBoundingClientRect()]));

/** Lets the numbers of the card before fly to where they stand in another; off where motion is unwanted. */
export function fly(sources, to) {
  if (globalThis.matchMedia("(prefers-reduced-motion: reduce)").matches) return;
  for (const target of [...to.querySelectorAll("[data-in]")].slice(0, MOST)) {
    const [start, end] = [sources.get(target.dataset.in), target.getBoundingClientRect()];
    if (!start?.width || !end.width) continue;
    const moved = `translate(${start.left - end.left}px, ${start.top - end.top}px)`;
    target.animate([{ transform: moved, opacity: 0.4 }, { transform: "none", opacity: 1 }], { duration: LENGTH, easing: "ease-out" });
  }
}
