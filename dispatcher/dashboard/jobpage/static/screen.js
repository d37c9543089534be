// Screens of xterm.js for pages: their policy allows no inline styles, and untrusted
// programs write what is shown.
"use strict";

// xterm.js makes <style> elements and attributes, which the policy refuses. It gets elements
// that do the same by the style sheets and the style of the object model.
{
  const create = document.createElement.bind(document);

  // sheet returns an element that has the text of a style sheet.
  const sheet = () => {
    const element = create("template");
    const styles = new CSSStyleSheet();
    document.adoptedStyleSheets.push(styles);
    Object.defineProperty(element, "textContent", { set: (text) => styles.replaceSync(text) });
    element.remove = () => {
      document.adoptedStyleSheets = document.adoptedStyleSheets.filter((other) => other !== styles);
      Element.prototype.remove.call(element);
    };
    return element;
  };

  function setAttribute(name, value) {
    if (name === "style") this.style.cssText = value;
    else Element.prototype.setAttribute.call(this, name, value);
  }

  document.createElement = (name, options) => {
    if (name === "style") return sheet();
    const element = create(name, options);
    if (name === "span") element.setAttribute = setAttribute;
    return element;
  };
}

// What a program may not do to a page and to who looks at it: set titles, make links, fill
// the clipboard, change the colors of the page, and have anything typed that it chose. Of
// what it may ask a terminal, only the position of the cursor, the state and the primary
// attributes are answered: what shells and editors do not work without.
const refused = {
  osc: [0, 1, 2, 4, 8, 10, 11, 12, 52, 104, 110, 111, 112],
  csi: [{ prefix: ">", final: "c" }, { intermediates: "$", final: "p" }, { prefix: "?", intermediates: "$", final: "p" }],
  dcs: [{ intermediates: "$", final: "q" }],
};

// colorsOf returns the colors of the page for a screen.
function colorsOf(element) {
  const probe = element.appendChild(document.createElement("i"));
  const color = (name) => {
    probe.style.color = `var(${name})`;
    return getComputedStyle(probe).color;
  };
  const [background, foreground, cursor, selectionBackground, slider] = ["--surface", "--text", "--accent", "--info-bg", "--line"].map(color);
  probe.remove();
  return {
    background, foreground, cursor, cursorAccent: background, selectionBackground,
    scrollbarSliderBackground: slider, scrollbarSliderHoverBackground: slider, scrollbarSliderActiveBackground: slider,
  };
}

// newScreen returns a screen in an element. Nothing can be typed until disableStdin is false.
function newScreen(element) {
  const style = getComputedStyle(element);
  const screen = new Terminal({
    disableStdin: true, fontFamily: style.fontFamily, fontSize: parseFloat(style.fontSize), theme: colorsOf(element), scrollback: 5000, screenReaderMode: true,
    minimumContrastRatio: 4.5, // also what a program writes in the color of the background
  });
  for (const number of refused.osc) screen.parser.registerOscHandler(number, () => true);
  for (const sequence of refused.csi) screen.parser.registerCsiHandler(sequence, () => true);
  for (const sequence of refused.dcs) screen.parser.registerDcsHandler(sequence, () => true);

  // Tab is for the program, and leaves the screen behind Escape or where nothing is typed.
  let escaped = false;
  screen.attachCustomKeyEventHandler((event) => {
    if (event.type !== "keydown" || event.key === "Shift") return true;
    const leaves = event.key === "Tab" && (escaped || screen.options.disableStdin);
    escaped = event.key === "Escape";
    return !leaves;
  });
  screen.open(element);
  return screen;
}
