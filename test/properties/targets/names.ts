import assert from 'node:assert/strict'
import fc from 'fast-check'
import { serverNamePattern } from '../../../src/config/schema/server-names.ts'
import { isTakenByModels, Names } from '../../../src/registry/names.ts'
import { target, type Target } from '../target.ts'

const separators = fc.constantFrom('__', '_', '-', '_a_', 'aa', '--')
const chars = (all: string) => fc.string({ unit: fc.constantFrom(...all), maxLength: 7 })

/** Returns whether a server may have this name with this separator. */
function isTaken(server: string, separator: string): boolean {
  return serverNamePattern.test(server) && (server + separator).indexOf(separator) === server.length
}

const uri = fc.oneof(
  chars('a:/_.-?#%{}'),
  chars('a/_-').map((rest) => `ui://${rest}`),
  chars('a/_-').map((rest) => `file:///${rest}`),
)

export const nameTargets: readonly Target[] = [
  target(
    'every name and every URI finds back to its server, and no two share one',
    fc.tuple(separators, fc.array(fc.tuple(chars('aA_-0'), chars('a_-./: é\n'), uri), { maxLength: 6 })),
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
    'any text is a name of some server, or of none, and every tool is shown under a name that models take',
    fc.tuple(fc.oneof(fc.string({ unit: 'binary', maxLength: 140 }), chars('a__:/')), separators),
    ([text, separator]) => {
      const names = new Names(separator)
      const resolved = names.resolve(text)
      if (resolved !== undefined) assert.equal(names.expose(resolved.server, resolved.name), text)
      const resource = names.resolveUri(text)
      if (resource !== undefined) assert.equal(typeof resource.server, 'string')
      const [server = 's', tool = text] = resolved === undefined ? [] : [resolved.server, resolved.name]
      if (!isTaken(server, separator)) return
      const shown = names.exposeTool(server, tool)
      assert.ok(isTakenByModels(shown), shown)
      assert.equal(names.resolve(shown)?.server, server)
      if (isTakenByModels(names.expose(server, tool))) assert.equal(shown, names.expose(server, tool))
    },
  ),
]
