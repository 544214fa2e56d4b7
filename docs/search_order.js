// Pages whose title has the words of the query come first, the shortest title before the others.
var Scorer = {
  score: ([, title, anchor, , score, , kind]) => {
    const query = (new URLSearchParams(location.search).get("q") ?? "").toLowerCase().trim();
    const words = title.toLowerCase();
    const isPage = kind !== "object" && !anchor;
    if (!isPage || !query || !query.split(/\s+/).every((word) => words.includes(word))) return score;
    return score + 100 + Math.round((100 * query.length) / words.length);
  },
  objNameMatch: 11,
  objPartialMatch: 6,
  objPrio: { 0: 15, 1: 5, 2: -5 },
  objPrioDefault: 0,
  title: 15,
  partialTitle: 7,
  term: 5,
  partialTerm: 2,
};
