/** Stands for a reply that is text and no JSON. */
export const TEXT = Symbol('text')

const names = ['null', 'boolean', 'number', 'string', 'array', 'object', 'text'] as const
const bits = { null: 1, boolean: 2, number: 4, string: 8, array: 16, object: 32, text: 64 }

/** The type of a JSON value, as one bit. */
export function typeOf(value: unknown): number {
  if (typeof value === 'object') {
    if (value === null) return bits.null
    return Array.isArray(value) ? bits.array : bits.object
  }
  if (typeof value === 'string') return bits.string
  if (typeof value === 'number') return bits.number
  return value === TEXT ? bits.text : bits.boolean
}

/** Types, as people call them: `string or null`. */
export function typeNames(types: number): string {
  return names.filter((name) => (types & bits[name]) !== 0).join(' or ')
}

/** What is known of the values at one path. */
export class ShapeNode {
  types = 0
  /** How many values there were, and how many of them were objects. */
  seen = 0
  objects = 0
  /** Members of objects by name; undefined as long as there was no object, or once names are arbitrary. */
  members: Map<string, ShapeNode> | undefined
  /** Any member of an object whose names are arbitrary. */
  rest: ShapeNode | undefined
  /** Any element of a list. */
  element: ShapeNode | undefined
  /** Whether every object above had it; settled at the end of learning. */
  required = false

  /** How many paths this one and those below it are. */
  get size(): number {
    let size = 1 + (this.rest?.size ?? 0) + (this.element?.size ?? 0)
    for (const member of this.members?.values() ?? []) size += member.size
    return size
  }
}
