// Waits until the page is drawn: fonts are there, and nothing in the document changes any more.
const STILL = 400; // milliseconds without a change
const PATIENCE = 20_000; // milliseconds until a page that never rests is taken as it is

export async function quiet() {
  await document.fonts.ready;
  await new Promise((done) => {
    const end = () => {
      observer.disconnect();
      clearTimeout(still);
      clearTimeout(late);
      done();
    };
    let still = setTimeout(end, STILL);
    const late = setTimeout(end, PATIENCE);
    const observer = new MutationObserver(() => {
      clearTimeout(still);
      still = setTimeout(end, STILL);
    });
    observer.observe(document.body, { attributes: true, characterData: true, childList: true, subtree: true });
  });
  await document.fonts.ready;
  await new Promise((done) => requestAnimationFrame(() => requestAnimationFrame(done)));
}
