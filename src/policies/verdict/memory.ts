/** Shortest time between two reports of the same kind about a tool, in milliseconds. */
const REPORT_GAP_MS = 10_000

const MAX_DRIFTS = 50

/** Passes the first report, and then one per interval. */
class Throttle {
  #nextAt = -Infinity

  passes(now: number): boolean {
    if (now < this.#nextAt) return false
    this.#nextAt = now + REPORT_GAP_MS
    return true
  }
}

/** The memory of a tool's replies, as long as the tool's entry is unchanged. */
class ToolMemory {
  readonly fingerprint: string
  readonly shape = new ShapeMemory()
  /** The rule that replies are JSON. */
  readonly json = new Habit()
  /** The rule that text and structured content are equal. */
  readonly copy = new Habit()
  readonly whole = new Habit()
  readonly cursor = new Habit()
  readonly #breaches = new Throttle()
  readonly #drifts = new Throttle()
  readonly #reported = new Set<string>()

  constructor(fingerprint: string) {
    this.fingerprint = fingerprint
  }

  reportsBreach(now: number): boolean {
    return this.#breaches.passes(now)
  }

  /** Returns whether to report a drift now. Each drift is reported once. */
  reportsDrift({ path, now }: Drift, at: number): boolean {
    const drift = `${path} ${now}`
    if (this.#reported.has(drift) || this.#reported.size >= MAX_DRIFTS || !this.#drifts.passes(at))
      return false
    this.#reported.add(drift)
    return true
  }

  get drifts(): readonly string[] {
    return [...this.#reported]
  }
}

export type { ToolMemory }

/** The memory of a tool; starts over when anything in the tool's entry changes. */
export class ToolMemories {
  #memory: ToolMemory | undefined

  of(fingerprint: string): ToolMemory {
    if (this.#memory?.fingerprint !== fingerprint) this.#memory = new ToolMemory(fingerprint)
    return this.#memory
  }

  /** Returns whether the shape is learned, its number of paths, and the reported drifts. */
  snapshot(): Readonly<Record<string, unknown>> {
    if (this.#memory === undefined) return {}
    return { ...this.#memory.shape.snapshot(), drifts: this.#memory.drifts }
  }
}

/** Repetitions in a row that make a habit. */
const HABIT = 3

/** Exceptions in a row that show a tool has no such habit. */
const NO_HABIT = 3

/** Exceptions in a row that end even a habit: the server has changed for good. */
const LOST = 20

/**
 * A rule the tool follows. An exception to the rule is suspicious. A rule that never held is soon dropped. A persistent
 * exception becomes the rule, because a false alarm must not last.
 */
export class Habit {
  #kept = 0
  #broken = 0

  /** Notes a reply that follows the rule. */
  keep(): void {
    this.#kept++
    this.#broken = 0
  }

  /** Notes a reply that breaks the rule. */
  break(): void {
    this.#broken++
    if (this.#broken >= LOST) this.#kept = 0
  }

  /** Whether the tool always follows the rule. */
  get strong(): boolean {
    return this.#kept >= HABIT
  }

  /** Whether the tool may follow the rule: early on, nobody can tell. */
  get possible(): boolean {
    return this.strong || this.#broken < NO_HABIT
  }
}

/** The place where a reply has another shape than earlier replies. */
export interface Drift {
  /** A JSON Pointer with `*` for any element or arbitrary name; empty for the whole reply. */
  readonly path: string
  readonly was: string
  readonly now: string
}

const MAX_DEPTH = 8
const MAX_PATHS = 200
/** Objects with more members are maps: their names are data. */
const MAX_MEMBERS = 32
/** Most elements and arbitrary members to look at. */
const MAX_ELEMENTS = 50
const LONGEST_NAME = 64

/** The union of the shapes of several replies. */
export class Shape {
  readonly root = new ShapeNode()
  replies = 0
  paths = 1

  learn(value: unknown): void {
    this.replies++
    this.#learn(this.root, value, 0)
  }

  /** Ends the learning: from here on, members present in every object are required. */
  settle(node: ShapeNode = this.root): void {
    for (const member of node.members?.values() ?? []) {
      member.required = member.seen === node.objects
      this.settle(member)
    }
    if (node.rest !== undefined) this.settle(node.rest)
    if (node.element !== undefined) this.settle(node.element)
  }

  #learn(node: ShapeNode, value: unknown, depth: number): void {
    node.seen++
    node.types |= typeOf(value)
    if (typeof value !== 'object' || value === null || depth === MAX_DEPTH) return
    if (Array.isArray(value)) {
      const element = (node.element ??= this.#add())
      if (element === undefined) return
      for (let i = 0; i < value.length && i < MAX_ELEMENTS; i++) this.#learn(element, value[i], depth + 1)
    } else this.#learnObject(node, value as Readonly<Record<string, unknown>>, depth)
  }

  #learnObject(node: ShapeNode, value: Readonly<Record<string, unknown>>, depth: number): void {
    const keys = Object.keys(value)
    node.objects++
    if (node.rest === undefined && this.#isMap(node, keys)) {
      for (const member of node.members?.values() ?? []) this.paths -= member.size
      node.members = undefined
      node.rest = this.#add()
    }
    if (node.rest !== undefined) {
      for (const key of keys.slice(0, MAX_ELEMENTS)) this.#learn(node.rest, value[key], depth + 1)
      return
    }
    node.members ??= new Map()
    for (const key of keys) {
      let member = node.members.get(key)
      if (member === undefined) {
        if (key === '__proto__' || (member = this.#add()) === undefined) continue
        node.members.set(key, member)
      }
      this.#learn(member, value[key], depth + 1)
    }
  }

  #isMap({ members }: ShapeNode, keys: readonly string[]): boolean {
    if (keys.length > MAX_MEMBERS) return true
    let known = members?.size ?? 0
    for (const key of keys) {
      if (key.length > LONGEST_NAME) return true
      if (members?.has(key) !== true) known++
    }
    return known > MAX_MEMBERS
  }

  #add(): ShapeNode | undefined {
    if (this.paths >= MAX_PATHS) return undefined
    this.paths++
    return new ShapeNode()
  }
}

/** Returns the first place where a value leaves a shape: a new type, or a missing member that was always present. */
function driftFrom(node: ShapeNode, value: unknown): Drift | undefined {
  const type = typeOf(value)
  // Nothing is known about elements of lists that were always empty.
  if (node.types === 0) return undefined
  if ((node.types & type) === 0) return { path: '', was: typeNames(node.types), now: typeNames(type) }
  if (typeof value !== 'object' || value === null) return undefined
  if (Array.isArray(value)) {
    if (node.element === undefined) return undefined
    for (let i = 0; i < value.length && i < MAX_ELEMENTS; i++) {
      const drift = driftFrom(node.element, value[i])
      if (drift !== undefined) return under('*', drift)
    }
    return undefined
  }
  const object = value as Readonly<Record<string, unknown>>
  if (node.rest !== undefined) {
    for (const key of Object.keys(object).slice(0, MAX_ELEMENTS)) {
      const drift = driftFrom(node.rest, object[key])
      if (drift !== undefined) return under('*', drift)
    }
  }
  if (node.members === undefined) return undefined
  for (const [key, member] of node.members) {
    const inner = object[key]
    // An inherited member is a function, and JSON has no functions.
    if (inner === undefined || typeof inner === 'function') {
      if (member.required) return { path: `/${key}`, was: typeNames(member.types), now: 'missing' }
    } else {
      const drift = driftFrom(member, inner)
      if (drift !== undefined) return under(key, drift)
    }
  }
  return undefined
}

function under(key: string, { path, was, now }: Drift): Drift {
  return { path: `/${key}${path}`, was, now }
}

/** A value that represents a plain-text reply. */
export const TEXT = Symbol('text')

const names = ['null', 'boolean', 'number', 'string', 'array', 'object', 'text'] as const
const bits = { null: 1, boolean: 2, number: 4, string: 8, array: 16, object: 32, text: 64 }

/** Returns the type of a JSON value, as one bit. */
function typeOf(value: unknown): number {
  if (typeof value === 'object') {
    if (value === null) return bits.null
    return Array.isArray(value) ? bits.array : bits.object
  }
  if (typeof value === 'string') return bits.string
  if (typeof value === 'number') return bits.number
  return value === TEXT ? bits.text : bits.boolean
}

/** Returns types in words: `string or null`. */
function typeNames(types: number): string {
  return names.filter((name) => (types & bits[name]) !== 0).join(' or ')
}

/** The known values at a path. */
class ShapeNode {
  types = 0
  /** How many values there were, and how many were objects. */
  seen = 0
  objects = 0
  /** Members of objects by name; undefined before the first object, or once names are arbitrary. */
  members: Map<string, ShapeNode> | undefined
  /** Any member of an object with arbitrary names. */
  rest: ShapeNode | undefined
  /** Any element of a list. */
  element: ShapeNode | undefined
  /** Whether every parent object had this member; settled at the end of learning. */
  required = false

  /** How many paths this node and its descendants have. */
  get size(): number {
    let size = 1 + (this.rest?.size ?? 0) + (this.element?.size ?? 0)
    for (const member of this.members?.values() ?? []) size += member.size
    return size
  }
}

/** Replies needed to learn a shape, and drifting replies in a row that become the new shape. */
const ENOUGH = 20

/** The shape of a tool's replies, and the shape of replies that differ from it. */
class ShapeMemory {
  #shape = new Shape()
  #settled = false
  #next: Shape | undefined

  /** Compares a reply with earlier replies, or learns from it; returns the difference. */
  observe(value: unknown): Drift | undefined {
    if (!this.#settled) {
      this.#shape.learn(value)
      if (this.#shape.replies === ENOUGH) this.#settle()
      return undefined
    }
    const drift = driftFrom(this.#shape.root, value)
    if (drift === undefined) this.#next = undefined
    else this.#follow(value)
    return drift
  }

  snapshot(): { settled: boolean; paths: number; drifting: number } {
    return { settled: this.#settled, paths: this.#shape.paths, drifting: this.#next?.replies ?? 0 }
  }

  #follow(value: unknown): void {
    this.#next ??= new Shape()
    this.#next.learn(value)
    if (this.#next.replies < ENOUGH) return
    this.#shape = this.#next
    this.#next = undefined
    this.#settle()
  }

  #settle(): void {
    this.#shape.settle()
    this.#settled = true
  }
}
