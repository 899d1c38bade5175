import { readdir, readFile } from 'node:fs/promises'
import { join } from 'node:path'
import { setTimeout } from 'node:timers/promises'
import { until } from '../../support/until.ts'
import { FlakyServer } from '../support/flaky.ts'
import { Gateway, type GatewayParts, type Json, newFolder } from '../support/gateway.ts'
import { RawClient } from '../support/raw-client.ts'

const INTENT = 'dev.breakwater/intent'

/** A run as the admin API shows it. */
export interface Shown {
  readonly kind: string
  readonly name: string
  readonly state: string
  readonly phase: string
  readonly reason: string
  readonly stage: number
  readonly faults: readonly { readonly name: string; readonly injected: number }[]
  readonly rollback?: {
    readonly armed: readonly string[]
    readonly arms: readonly string[]
    readonly atMs: number
  }
}

/** Returns a spec with short times; by default half of the treatment's calls fail. */
export const specOf = (more: Json = {}): Json => ({
  name: 'drill',
  owner: 'tests',
  reason: 'to see what happens',
  hypothesis: { steadyState: ['error_ratio < 1%', 'p95 < 2s', 'status = up'] },
  targets: { server: 'flaky', tool: 'read', environment: 'staging' },
  arms: { control: 'plain', treatment: 'plain' },
  faults: [{ name: 'broken', type: 'rpc.error', rate: 1 }],
  stages: [
    { share: '25%', duration: '2s' },
    { share: '50%', duration: '2s' },
  ],
  gate: {
    rollbackOn: [{ metric: 'error_ratio', above: '10%', for: '500ms' }],
    over: '1s',
    minimum: 4,
    missing: '5s',
  },
  baseline: { duration: '1s', minimum: 5 },
  recovery: { within: '20s', over: '1s' },
  ...more,
})

export const partsWith = (folder: string, url: string, more: Partial<GatewayParts> = {}): GatewayParts => ({
  servers: { flaky: { url, trusted: true } },
  gateway: { environment: 'staging', stateDir: join(folder, 'state') },
  policies: { sets: { plain: { retry: false, breaker: false } } },
  chaos: { enabled: true, seed: 7 },
  ...more,
})

/** Starts a gateway with a state folder before a server of read-only tools. */
export async function started(more: Partial<GatewayParts> = {}) {
  const folder = await newFolder()
  const server = await FlakyServer.start()
  const parts = partsWith(folder, server.url, more)
  const gateway = await Gateway.start(parts, { folder })
  await gateway.waitFor('up', 'flaky')
  return { gateway, server, folder, parts }
}

export const shown = async (gateway: Gateway, name = 'drill'): Promise<Shown> =>
  (await gateway.admin<Shown>(`/admin/experiments/${name}`)).body

export const ask = (gateway: Gateway, spec: Json, more: Json = {}) =>
  gateway.post<Json & { findings?: { path: string; message: string }[] }>('/admin/experiments', {
    spec,
    by: 'tester',
    ...more,
  })

export const comesTo = (gateway: Gateway, phase: string, name = 'drill') =>
  until(
    `${name} is in ${phase}`,
    async () => {
      const run = await shown(gateway, name)
      return run.phase === phase || (run.state !== 'running' && run.state !== 'pending_approval')
    },
    60_000,
  )

export interface Traffic {
  /** Calls that returned, and the failures among them. */
  readonly counts: { calls: number; failed: number }
  stop(): Promise<void>
}

/** Pause between two calls of an agent, in milliseconds: short enough for every gate, and light on the machine. */
const PAUSE_MS = 10

/** Starts agents that call `read` of a server repeatedly, each call its own task, until stopped. */
export async function traffic(gateway: Gateway, agents = 4, server = 'flaky'): Promise<Traffic> {
  const counts = { calls: 0, failed: 0 }
  const over = new AbortController()
  let task = 0
  const work = async () => {
    const client = await RawClient.open(gateway.mcp(server)).catch(() => undefined)
    if (client === undefined) return
    while (!over.signal.aborted) {
      const _meta = { [INTENT]: `task ${task++}` }
      const reply = await client
        .request('tools/call', { name: 'read', arguments: {}, _meta })
        .catch((): Json => ({ error: 'the gateway is gone' }))
      counts.calls++
      if ('error' in reply) counts.failed++
      if (reply.error === 'the gateway is gone') return
      await setTimeout(PAUSE_MS)
    }
  }
  const working = Array.from({ length: agents }, work)
  // A baseline of a second needs calls, and sessions take time to open.
  await until('calls come back', () => counts.calls >= 2 * agents)
  return {
    counts,
    async stop() {
      over.abort()
      await Promise.allSettled(working)
    },
  }
}

const placeOf = (folder: string) => join(folder, 'state', 'experiments')

/** Waits for `count` sealed runs in a state folder; returns them, oldest first. */
export async function journalOf(folder: string, count = 1): Promise<Json[]> {
  const sealed = async () =>
    (await readdir(placeOf(folder))).filter((name) => /^run-\d+\.json$/.test(name)).sort()
  await until(`${count} runs are sealed`, async () => (await sealed()).length >= count)
  return Promise.all(
    (await sealed()).map(async (name) => {
      const { run } = JSON.parse(await readFile(join(placeOf(folder), name), 'utf8')) as {
        run: { record: Json }
      }
      return run.record
    }),
  )
}

/** Waits until the current run's record on disk satisfies `says`. */
export const isWritten = (folder: string, what: string, says: (record: Json) => boolean) =>
  until(`the record says ${what}`, async () => {
    const names = (await readdir(placeOf(folder))).filter((name) => /^open-.*\.json$/.test(name))
    const texts = await Promise.all(
      names.map((name) => readFile(join(placeOf(folder), name), 'utf8').catch(() => '')),
    )
    return texts.some((text) => text !== '' && says((JSON.parse(text) as { open: Json }).open))
  })
