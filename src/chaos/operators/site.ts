import { isObject } from '../../protocol/jsonrpc.ts'
import { EVERY } from './pointer.ts'

/** A place in a value. */
export interface Site {
  readonly value: unknown
  /** The key in its holder; undefined for the whole value and for array elements. */
  readonly key: string | undefined
  readonly holder: Readonly<Record<string, unknown>> | undefined
}

/** The replacement of a site: another value or, in an object, any number of members in place of this member. */
export type Edit = { readonly value: unknown } | { readonly members: readonly (readonly [string, unknown])[] }

/** Returns the replacement of a site; undefined leaves the site unchanged. */
export type Editor = (site: Site) => Edit | undefined

/**
 * Returns a copy of `root`, edited at each place the segments name; undefined when there is no such place, or no edit.
 * The copy shares all other parts with `root`; `root` stays unchanged.
 */
export function edited(
  root: unknown,
  segments: readonly string[],
  edit: Editor,
): { readonly value: unknown } | undefined {
  const done = incoming({ value: root, key: undefined, holder: undefined }, segments, 0, edit)
  return done !== undefined && 'value' in done ? done : undefined
}

function incoming(site: Site, segments: readonly string[], at: number, edit: Editor): Edit | undefined {
  const segment = segments[at]
  if (segment === undefined) return edit(site)
  if (Array.isArray(site.value)) return visitArray(site.value, segment, segments, at + 1, edit)
  return isObject(site.value) ? visitObject(site.value, segment, segments, at + 1, edit) : undefined
}

function visitArray(
  elements: readonly unknown[],
  segment: string,
  segments: readonly string[],
  at: number,
  edit: Editor,
): Edit | undefined {
  if (segment !== EVERY && !/^(0|[1-9]\d*)$/.test(segment)) return undefined
  let changed = false
  const copy = elements.map((value, index) => {
    if (segment !== EVERY && Number(segment) !== index) return value
    const done = incoming({ value, key: undefined, holder: undefined }, segments, at, edit)
    if (done === undefined || !('value' in done)) return value
    changed = true
    return done.value
  })
  return changed ? { value: copy } : undefined
}

function visitObject(
  holder: Readonly<Record<string, unknown>>,
  key: string,
  segments: readonly string[],
  at: number,
  edit: Editor,
): Edit | undefined {
  if (!Object.hasOwn(holder, key)) return undefined
  const done = incoming({ value: holder[key], key, holder }, segments, at, edit)
  if (done === undefined) return undefined
  // Built from entries to keep the order, and to make a key like `__proto__` an ordinary member.
  const entries = Object.entries(holder).flatMap((entry) => {
    if (entry[0] !== key) return [entry]
    return 'members' in done ? done.members : [[key, done.value] as const]
  })
  return { value: Object.fromEntries(entries) }
}
