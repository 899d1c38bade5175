import assert from 'node:assert/strict'
import { readdirSync, readFileSync } from 'node:fs'
import { dirname, join, normalize } from 'node:path'
import { test } from 'node:test'
import { fileURLToPath } from 'node:url'

const root = fileURLToPath(new URL('../../../src', import.meta.url))

/** Returns the imports of each source file, types included; paths from `src`. */
function imports(): ReadonlyMap<string, readonly string[]> {
  const files = readdirSync(root, { recursive: true, encoding: 'utf8' }).filter((file) =>
    file.endsWith('.ts'),
  )
  const known = new Set(files)
  return new Map(
    files.map((file) => {
      const text = readFileSync(join(root, file), 'utf8')
      const specifiers = [...text.matchAll(/\b(?:from|import)\s*\(?\s*'(\.[^']+)'/g)].map(
        ([, path = '']) => path,
      )
      return [
        file,
        specifiers.map((path) => normalize(join(dirname(file), path))).filter((path) => known.has(path)),
      ]
    }),
  )
}

/** The first way from a file back to itself; empty when there is none. */
function circleIn(graph: ReadonlyMap<string, readonly string[]>): readonly string[] {
  const done = new Set<string>()
  const way: string[] = []
  const incoming = (file: string): readonly string[] => {
    if (way.includes(file)) return [...way.slice(way.indexOf(file)), file]
    if (done.has(file)) return []
    way.push(file)
    for (const next of graph.get(file) ?? []) {
      const circle = incoming(next)
      if (circle.length > 0) return circle
    }
    way.pop()
    done.add(file)
    return []
  }
  for (const file of graph.keys()) {
    const circle = incoming(file)
    if (circle.length > 0) return circle
  }
  return []
}

test('no source file imports itself by way of others', () => {
  const graph = imports()
  assert.ok(graph.size > 100)
  assert.deepEqual(circleIn(graph), [])
})

test('a circle is found', () => {
  assert.deepEqual(
    circleIn(
      new Map([
        ['a', ['b']],
        ['b', ['c']],
        ['c', ['b']],
      ]),
    ),
    ['b', 'c', 'b'],
  )
})
