import assert from 'node:assert/strict'
import { mkdtemp, rm, writeFile } from 'node:fs/promises'
import { request } from 'node:http'
import { createServer, type AddressInfo } from 'node:net'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { test } from 'node:test'
import { loadConfig } from '../../src/config/load.ts'
import { config } from '../../src/config/schema/schema.ts'
import { startGateway } from '../../src/gateway/gateway.ts'
import { during } from '../../src/mesh/work.ts'
import { silent } from '../support/log.ts'

test('where an address is taken, nobody watches the event loop any more', async (t) => {
  const taken = createServer()
  await new Promise<void>((resolve) => taken.listen(0, '127.0.0.1', resolve))
  t.after(() => taken.close())
  const control = `127.0.0.1:${(taken.address() as AddressInfo).port}`
  const parsed = config.parse({ gateway: { listen: '127.0.0.1:0', control, controlToken: 'x'.repeat(32) } })
  const options = { config: parsed, path: 'gateway.yaml', env: {}, log: silent }
  await assert.rejects(startGateway(options), /gateway\.control/)
  const now = t.mock.method(performance, 'now')
  during('schema', () => undefined)
  assert.equal(now.mock.callCount(), 0)
})

test('a reload that changes the limits of bodies changes those of the control plane, too', async (t) => {
  const folder = await mkdtemp(join(tmpdir(), 'breakwater-'))
  t.after(() => rm(folder, { recursive: true }))
  const path = join(folder, 'gateway.yaml')
  const controlToken = 'x'.repeat(32)
  const written = async (maxInFlight: number) => {
    const listen = '127.0.0.1:0'
    const gateway = { listen, control: listen, controlToken, maxInFlight }
    await writeFile(path, JSON.stringify({ gateway }))
  }
  await written(2_000)
  const loaded = await loadConfig(path, {})
  assert.ok(loaded.ok)
  const gateway = await startGateway({ config: loaded.config, path, env: {}, log: silent })
  t.after(() => gateway.close())
  await written(1)
  assert.equal((await gateway.reload('test')).ok, true)

  const headers = { authorization: `Bearer ${controlToken}`, 'content-type': 'application/json' }
  const url = `${gateway.control}/admin/servers`
  const statuses: (number | undefined)[] = []
  const refused = new Promise<void>((resolve) => {
    // Neither request ever completes: the limit is one, so the second is refused.
    for (const _ of [1, 2]) {
      const asking = request(url, { method: 'POST', headers: { ...headers, 'content-length': 100 } })
      asking.on('error', () => undefined)
      asking.on('response', ({ statusCode }) => {
        statuses.push(statusCode)
        resolve()
      })
      asking.write('{')
      t.after(() => asking.destroy())
    }
  })
  await refused
  assert.deepEqual(statuses, [503])
})
