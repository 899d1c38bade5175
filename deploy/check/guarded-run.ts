import { setTimeout } from 'node:timers/promises'
import { RawClient } from '../../test/e2e/support/raw-client.ts'
import { tagged } from './load.ts'
import { readJson, type World } from './world.ts'

/** Name of the plan that runs while a Prometheus watches. */
export const PLAN = 'reads'

/** A guarded run at the steady server, with slow reads in its only stage. */
const specFor = (stageS: number) => ({
  name: PLAN,
  owner: 'dashboards',
  reason: 'A dashboard shows this run.',
  hypothesis: { steadyState: ['error_ratio < 10%', 'p95 < 2s'] },
  targets: { server: 'steady', tool: 'read', environment: 'staging' },
  faults: [
    { name: 'slow-reads', type: 'conn.latency', rate: 1, distribution: { kind: 'fixed', delay: '30ms' } },
  ],
  stages: [{ share: '50%', duration: `${stageS}s` }],
  gate: { rollbackOn: [{ metric: 'error_ratio', above: '50%', for: '1s' }], over: '2s', minimum: 4 },
  baseline: { duration: '2s', minimum: 5 },
  recovery: { within: '20s', over: '1s', rto: `${stageS + 20}s` },
  every: '30d',
})

interface Shown {
  readonly state: string
  readonly reason: string
}

/** Plays a guarded run while agents read; rejects unless the run completes. `stageS`: length of its stage, in seconds. */
export async function playRun(world: World, stageS: number): Promise<void> {
  const { control, token } = world
  const path = `/admin/experiments/${PLAN}`
  const client = await RawClient.open(world.steady)
  let tasks = 0
  const read = async () => {
    const _meta = tagged(`read-${tasks++}`)
    await client.request('tools/call', { name: 'read', arguments: {}, _meta })
    await setTimeout(20)
  }
  await read()
  const asked = await fetch(`${control}/admin/experiments`, {
    method: 'POST',
    headers: { 'content-type': 'application/json', authorization: `Bearer ${token}` },
    body: JSON.stringify({ spec: specFor(stageS), by: 'dashboards', approvedBy: 'somebody else' }),
  })
  if (!asked.ok) throw new Error(`the run was refused: ${await asked.text()}`)
  for (;;) {
    await Promise.all([read(), read()])
    if (tasks % 20 !== 1) continue
    const { state, reason } = (await readJson(world, path)) as Shown
    if (state === 'completed') return
    if (state !== 'running') throw new Error(`the run ended as ${state}: ${reason}`)
  }
}
