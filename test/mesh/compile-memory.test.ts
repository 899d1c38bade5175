import assert from 'node:assert/strict'
import { test } from 'node:test'
import { setImmediate } from 'node:timers/promises'
import { setFlagsFromString } from 'node:v8'
import { runInNewContext } from 'node:vm'
import type { Service } from '../../src/mesh/call.ts'
import { compileMesh } from '../../src/mesh/compile.ts'
import { testPolicyContext } from '../support/policy-context.ts'

setFlagsFromString('--expose-gc')
const collect = runInNewContext('gc') as () => void

/** A mesh with an override for each of these globs. */
function meshOf(globs: readonly string[]) {
  return compileMesh({
    policies: { retry: { build: () => (next) => (call) => next(call) } },
    config: { defaults: {}, overrides: globs.map((tool, n) => ({ match: { tool }, retry: n + 1 })) },
    context: testPolicyContext(),
    servers: new Map(),
    readdress: () => undefined,
    faults: { client: (next) => next, upstream: (next) => next },
    attempt: (next) => next,
    observe: (next) => next,
    transport: () => assert.fail('no call is expected'),
  })
}

test('names that an agent makes up are not kept for ever', () => {
  const mesh = meshOf(['query_*'])
  collect()
  const before = process.memoryUsage().heapUsed
  for (let n = 0; n < 4_000; n++) mesh.serviceFor('s', 'tools/call', `${n}`.padEnd(50_000, 'x'))
  for (let n = 0; n < 4_000; n++) mesh.serviceFor('s', `${n}`.padEnd(50_000, 'x'), undefined)
  collect()
  const heldMiB = (process.memoryUsage().heapUsed - before) / 1024 ** 2
  assert.ok(heldMiB < 40, `${heldMiB} MiB`)
})

test('the services of ever other sets of overrides are not kept for ever', async () => {
  const letters = [...'abcdefghijklmno']
  const mesh = meshOf(letters.map((letter) => `*${letter}*`))
  const services: WeakRef<Service>[] = []
  for (let n = 0; n < 2 ** letters.length; n++) {
    const name = letters.filter((_, bit) => (n >> bit) % 2 === 1).join('')
    services.push(new WeakRef(mesh.serviceFor('s', 'tools/call', name)))
  }
  // A turn of the event loop: until then a new weak reference keeps its target alive.
  await setImmediate()
  collect()
  const alive = services.filter((service) => service.deref() !== undefined).length
  assert.ok(alive < 10_000, `${alive} of ${services.length} are alive`)
})
