import { elements, locate, members, type Path, type Span } from './json-span.ts'

/** The wanted paths that go on in the same way. */
interface Branch {
  /** Which of the paths end here. */
  readonly ends: number[]
  readonly steps: Map<string | number, Branch>
}

/**
 * The spans of the values at many paths, in the order of the paths, in one walk over the text: as many
 * calls of `locate` would take a walk each.
 */
export function locateAll(text: string, paths: readonly Path[]): (Span | undefined)[] {
  const found = new Array<Span | undefined>(paths.length).fill(undefined)
  const root = locate(text, [])
  if (root !== undefined) walk(text, root, grow(paths), found)
  return found
}

function grow(paths: readonly Path[]): Branch {
  const root: Branch = { ends: [], steps: new Map() }
  for (const [index, path] of paths.entries()) {
    let branch = root
    for (const step of path) {
      let next = branch.steps.get(step)
      if (next === undefined) branch.steps.set(step, (next = { ends: [], steps: new Map() }))
      branch = next
    }
    branch.ends.push(index)
  }
  return root
}

function walk(text: string, span: Span, { ends, steps }: Branch, found: (Span | undefined)[]): void {
  for (const index of ends) found[index] = { start: span.start, end: span.end }
  if (steps.size === 0) return
  for (const [step, inner] of children(text, span)) {
    const branch = steps.get(step)
    if (branch !== undefined) walk(text, inner, branch, found)
  }
}

/** What stands in an object or array, each under its last name. */
function children(text: string, { start }: Span): Iterable<[string | number, Span]> {
  switch (text[start]) {
    case '{':
      return new Map([...members(text, start)].map((member) => [member.key, member]))
    case '[':
      return [...elements(text, start)].entries()
    default:
      return []
  }
}
