/** Who is here, and where they point. */

import type { Person } from "../protocol/types.gen";
import { KeyedChildren, element, setAttributes, setText } from "./dom";
import type { Viewer } from "./viewer";

/** How many colours tell people apart; more people share them, their names stay. */
const HUES = 8;

/** A colour that stays with a participant, on every page. */
export function hueOf(participant: string): number {
  let sum = 0;
  for (let i = 0; i < participant.length; i++) sum = (sum * 31 + participant.charCodeAt(i)) >>> 0;
  return sum % HUES;
}

interface Shown {
  readonly person: Person;
  readonly isMe: boolean;
  readonly looksAt: string;
}

export class PeopleList {
  private readonly items: KeyedChildren<Shown, HTMLElement>;

  constructor(
    list: HTMLElement,
    private readonly count: HTMLElement,
  ) {
    this.items = new KeyedChildren<Shown, HTMLElement>(list, newPerson, drawPerson);
  }

  render(
    people: ReadonlyMap<string, Person>,
    me: string,
    nameOf: (asset: string) => string | null,
  ): void {
    const shown = [...people.values()].map((person): [string, Shown] => {
      const looksAt = person.asset == null ? "" : (nameOf(person.asset) ?? "");
      return [person.participant, { person, isMe: person.participant === me, looksAt }];
    });
    shown.sort(([, a], [, b]) => Number(b.isMe) - Number(a.isMe));
    this.items.render(shown);
    setText(this.count, String(people.size));
  }
}

function newPerson(participant: string): HTMLElement {
  return element(
    "li",
    { class: `person hue-${hueOf(participant)}`, "data-testid": "person" },
    element("span", { class: "initials", "aria-hidden": "true" }),
    element("span", { class: "who" }, element("b"), element("span")),
    element("i"),
  );
}

function drawPerson(item: HTMLElement, { person, isMe, looksAt }: Shown): void {
  const [initials, who, state] = item.children;
  setAttributes(item, {
    "data-participant": person.participant,
    "data-typing": person.typing ? "true" : null,
    title: [person.name, person.department, person.role].filter(Boolean).join(", "),
  });
  setText(initials!, initialsOf(person.name));
  setText(who!.children[0]!, person.name + (isMe ? " (you)" : ""));
  const role = person.role === "member" ? "" : person.role;
  setText(who!.children[1]!, [person.department, role].filter(Boolean).join(" · "));
  setText(state!, person.typing ? "writing…" : looksAt === "" || isMe ? "" : looksAt);
}

function initialsOf(name: string): string {
  const words = name
    .split(/\s+/)
    .filter((word) => !/^(dr|prof|med)\.?$/i.test(word) && word !== "");
  const letters = [words.at(0), words.length > 1 ? words.at(-1) : undefined];
  return letters.map((word) => (word === undefined ? "" : [...word][0]!.toUpperCase())).join("");
}

export class Cursors {
  private people: readonly Person[] = [];
  private readonly tags: KeyedChildren<Person, HTMLElement>;

  constructor(
    layer: HTMLElement,
    private readonly viewer: Viewer,
  ) {
    this.tags = new KeyedChildren<Person, HTMLElement>(layer, newCursor, (tag, person) => {
      setText(tag.lastElementChild!, person.name);
      setAttributes(tag, { "data-x": person.x ?? null, "data-y": person.y ?? null });
    });
    viewer.watch(() => this.place());
  }

  /** Show everybody else who points at something in the shown picture. */
  render(people: ReadonlyMap<string, Person>, me: string): void {
    const { asset } = this.viewer;
    this.people = [...people.values()].filter(
      (person) =>
        person.participant !== me &&
        asset !== null &&
        person.asset === asset &&
        person.x != null &&
        person.y != null,
    );
    this.tags.render(this.people.map((person) => [person.participant, person]));
    this.place();
  }

  private place(): void {
    for (const { participant, x, y } of this.people) {
      const tag = this.tags.get(participant);
      if (tag === undefined) continue;
      const at = this.viewer.place({ x: x ?? 0, y: y ?? 0 });
      tag.style.transform = `translate(${at.x}px, ${at.y}px)`;
    }
  }
}

function newCursor(participant: string): HTMLElement {
  return element(
    "div",
    {
      class: `cursor hue-${hueOf(participant)}`,
      "data-testid": "cursor",
      "data-participant": participant,
    },
    element("span", { class: "arrow", "aria-hidden": "true" }),
    element("span", { class: "name" }),
  );
}
