/** Making elements. Text only ever becomes a text node, so nothing from a peer is read as HTML. */

type Attributes = Record<string, string | number | boolean | null>;

export function element<K extends keyof HTMLElementTagNameMap>(
  tag: K,
  attributes: Attributes = {},
  ...children: (Node | string)[]
): HTMLElementTagNameMap[K] {
  const made = document.createElement(tag);
  setAttributes(made, attributes);
  made.append(...children);
  return made;
}

export function svgElement<K extends keyof SVGElementTagNameMap>(
  tag: K,
  attributes: Attributes = {},
): SVGElementTagNameMap[K] {
  const made = document.createElementNS("http://www.w3.org/2000/svg", tag);
  setAttributes(made, attributes);
  return made;
}

/** Set what differs; `null` and `false` take an attribute away. */
export function setAttributes(target: Element, attributes: Attributes): void {
  for (const [name, value] of Object.entries(attributes)) {
    if (value === null || value === false) target.removeAttribute(name);
    else {
      const text = value === true ? "" : String(value);
      if (target.getAttribute(name) !== text) target.setAttribute(name, text);
    }
  }
}

export function setText(target: Element, text: string): void {
  if (target.textContent !== text) target.textContent = text;
}

/** The element of the page with this id; a page without it is not this page. */
export function byId<T extends Element>(id: string, type: new () => T): T {
  const found = document.getElementById(id);
  if (!(found instanceof type)) throw new Error(`the page has no ${type.name} #${id}`);
  return found;
}

/** Show the `items` as children of `parent`, keeping the element of each key. */
export class KeyedChildren<T, E extends Element> {
  private shown = new Map<string, { element: E; item: T }>();

  constructor(
    private readonly parent: Element,
    private readonly make: (key: string) => E,
    private readonly update: (element: E, item: T) => void,
  ) {}

  render(items: Iterable<readonly [string, T]>): void {
    const wanted = new Map(items);
    for (const [key, { element: old }] of this.shown) {
      if (wanted.has(key)) continue;
      old.remove();
      this.shown.delete(key);
    }
    let place = this.parent.firstElementChild;
    for (const [key, item] of wanted) {
      const known = this.shown.get(key);
      const child = known?.element ?? this.make(key);
      if (known === undefined || known.item !== item) {
        this.update(child, item);
        this.shown.set(key, { element: child, item });
      }
      if (place === child) place = child.nextElementSibling;
      else this.parent.insertBefore(child, place);
    }
  }

  get(key: string): E | undefined {
    return this.shown.get(key)?.element;
  }
}
