import assert from 'node:assert/strict'
import fc from 'fast-check'
import { config } from '../../../src/config/schema/schema.ts'
import { doubtAbout, Names } from '../../../src/registry/names.ts'
import { target, type Target } from '../target.ts'

const separators = fc.constantFrom('__', '_', '.', '-', '_a_', 'aa', '--')
const chars = (all: string) => fc.string({ unit: fc.constantFrom(...all), maxLength: 7 })

/** What the config takes as the name of a server, with this separator. */
function isTaken(server: string, separator: string): boolean {
  const servers = { [server]: { url: 'http://127.0.0.1:1/mcp' } }
  return (
    server !== '__proto__' &&
    config.safeParse({ gateway: { separator }, mcpServers: servers }).success &&
    (server + separator).indexOf(separator) === server.length
  )
}

const uri = fc.oneof(
  chars('a:/_.-?#%{}'),
  chars('a/_-').map((rest) => `ui://${rest}`),
  chars('a/_-').map((rest) => `file:///${rest}`),
)

export const nameTargets: readonly Target[] = [
  target(
    'every name and every URI finds back to its server, and no two share one',
    fc.tuple(separators, fc.array(fc.tuple(chars('aA_-.0'), chars('a_-./: é\n'), uri), { maxLength: 6 })),
    ([separator, all]) => {
      const names = new Names(separator)
      const owners = new Map<string, string>()
      for (const [server, name, uri] of all) {
        if (!isTaken(server, separator)) continue
        for (const [exposed, resolved, own] of [
          [names.expose(server, name), names.resolve(names.expose(server, name)), name],
          [names.exposeUri(server, uri), names.resolveUri(names.exposeUri(server, uri)), uri],
        ] as const) {
          assert.deepEqual(resolved, { server, name: own }, exposed)
          const owner = JSON.stringify([server, own])
          const kind = own === uri ? 'uri' : 'name'
          assert.equal(owners.get(kind + exposed) ?? owner, owner, exposed)
          owners.set(kind + exposed, owner)
        }
      }
    },
  ),

  target(
    'any text is a name of some server, or of none, and only what every client takes is not doubted',
    fc.tuple(fc.oneof(fc.string({ unit: 'binary', maxLength: 140 }), chars('a__:/')), separators),
    ([text, separator]) => {
      const names = new Names(separator)
      const resolved = names.resolve(text)
      if (resolved !== undefined) assert.equal(names.expose(resolved.server, resolved.name), text)
      const resource = names.resolveUri(text)
      if (resource !== undefined) assert.equal(typeof resource.server, 'string')
      const isSafe =
        text.length >= 1 && text.length <= 64 && [...text].every((c) => /^[A-Za-z0-9_.-]$/.test(c))
      assert.equal(doubtAbout(text) === undefined, isSafe)
    },
  ),
]
