import assert from 'node:assert/strict'
import { mkdtemp, rm, writeFile } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import type { TestContext } from 'node:test'
import { loadConfig } from '../../src/config/load.ts'
import { startGateway } from '../../src/gateway/gateway.ts'
import { configText, type GatewayParts, type Json } from '../e2e/support/gateway.ts'
import { recordedLog } from '../support/log.ts'
import { until } from '../support/until.ts'

/** The control token of every gateway here. */
export const controlToken = 'x'.repeat(32)

/** A gateway with real ports in the test's process. Ends with the test; does not watch its config file. */
export async function runGateway(t: TestContext, parts: GatewayParts) {
  const folder = await mkdtemp(join(tmpdir(), 'breakwater-'))
  t.after(() => rm(folder, { recursive: true }))
  const path = join(folder, 'gateway.yaml')
  const write = ({ gateway, ...others }: GatewayParts) =>
    writeFile(path, configText({ ...others, gateway: { controlToken, ...gateway } }))
  await write(parts)
  const loaded = await loadConfig(path, {})
  assert.ok(loaded.ok)
  const { log, lines } = recordedLog()
  const gateway = await startGateway({ config: loaded.config, path, env: {}, log })
  t.after(() => gateway.close())
  const { live } = gateway
  return {
    gateway,
    live,
    path,
    lines,
    mcp: (server: string) => `${gateway.data}/mcp/${server}`,
    /** Asks the control plane. */
    async admin<Body = Json>(route: string, body?: object): Promise<Body> {
      const headers = { authorization: `Bearer ${controlToken}`, 'content-type': 'application/json' }
      const init = body === undefined ? {} : { method: 'POST', body: JSON.stringify(body) }
      const response = await fetch(gateway.control + route, { ...init, headers })
      return (await response.json()) as Body
    },
    /** Writes a config to the file and reloads it. */
    async reload(next: GatewayParts) {
      await write(next)
      return gateway.reload('test')
    },
    /** Waits until servers of the generation in force are up. */
    isUp: (...names: string[]) =>
      until(`${names.join(', ')} up`, () =>
        names.every((name) => live.current.servers.get(name)?.state === 'up'),
      ),
  }
}
