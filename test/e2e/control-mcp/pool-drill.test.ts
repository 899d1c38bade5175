import assert from 'node:assert/strict'
import { readFile } from 'node:fs/promises'
import { join, resolve } from 'node:path'
import { after, before, test } from 'node:test'
import { parse } from 'yaml'
import { cleanUp, Gateway, type GatewayParts, type Json, newFolder } from '../support/gateway.ts'
import { approve, Asker, controlMcpOf, person, urlOf } from './scene.ts'

const alice = person('alice')
let gateway: Gateway
let asker: Asker

before(async () => {
  const drills = parse(await readFile('config/drills.yaml', 'utf8')) as Json & {
    gateway: Json
    mcpServers: GatewayParts['servers']
  }
  const state = await newFolder()
  gateway = await Gateway.start({
    servers: { memory: drills.mcpServers.memory! },
    gateway: {
      ...drills.gateway,
      stateDir: join(state, 'state'),
      controlMcp: controlMcpOf([alice], { plans: resolve('config/experiments') }),
    },
    policies: drills.policies as Json,
    chaos: drills.chaos as Json,
  })
  await gateway.waitFor('up', 'memory')
  asker = await Asker.open(urlOf(gateway))
})

after(async () => {
  await asker.client.close()
  await cleanUp()
})

interface Summary extends Json {
  readonly state: string
  readonly breach?: { readonly forMs: number }
  readonly rollback: { readonly atMs: number; readonly tookMs: number; readonly armed: readonly string[] }
  readonly sequence: readonly { readonly atMs: number; readonly sign: string; readonly what: string }[]
}

/** Proposes the plan with a change, has alice approve, starts the run, and returns the summary at its end. */
async function run(change: (plan: Json) => Json): Promise<Summary> {
  const plan = await asker.call('get_plan', { plan: 'pool-cut' })
  const spec = change(parse(String(plan.data.part)) as Json)
  const proposed = await asker.call('propose_run', { spec, why: 'how small may the pool be?' })
  assert.equal(proposed.data.needs, 'approval', JSON.stringify(proposed))
  const proposal = String(proposed.data.proposal)
  const early = await asker.call('start_run', { proposal, key: 'too-early' })
  assert.deepEqual([early.error?.code, early.error?.began], ['needs_approval', false])
  assert.equal((await approve({ gateway, alice } as never, proposal)).status, 200)
  const started = await asker.call('start_run', { proposal, key: 'once' })
  assert.equal(started.error, undefined, JSON.stringify(started.error))
  const id = String(started.data.run)
  for (;;) {
    const { data } = await asker.call('get_run', { run: id, wait: '20s' })
    if (data.state !== 'running') return data as Summary
  }
}

/** A smaller cut, with bounded retries and a short stage. */
const withSlots = (slots: number) => (plan: Json) => ({
  ...plan,
  arms: { control: 'bounded', treatment: 'bounded' },
  faults: (plan.faults as Json[]).map((fault) => (fault.name === 'pool' ? { ...fault, slots } : fault)),
  baseline: { duration: '3s' },
  stages: [{ share: '50%', duration: '6s' }],
})

test('a scripted agent cuts a pool in four runs; the last names pool, retries and own limit in this order', async () => {
  for (const slots of [14, 10, 6]) {
    const { state, sequence } = await run(withSlots(slots))
    assert.equal(state, 'completed', `${slots} slots`)
    assert.deepEqual(
      sequence.map(({ sign }) => sign),
      ['faults', 'latency'],
      JSON.stringify(sequence),
    )
  }
  const last = await run((plan) => plan)
  const { sequence } = last
  assert.equal(last.state, 'aborted')
  const [first] = sequence
  assert.match(first!.what, /pool \(pool\.exhaust\)/)
  const placeOf = (sign: string) => {
    const place = sequence.findIndex((one) => one.sign === sign)
    assert.ok(place >= 0, `${sign} is missing in ${JSON.stringify(sequence)}`)
    return place
  }
  assert.deepEqual(
    ['faults', 'retries', 'rejections', 'gate'].map(placeOf),
    ['faults', 'retries', 'rejections', 'gate'].map(placeOf).sort((a, b) => a - b),
    JSON.stringify(sequence),
  )
  assert.match(sequence[placeOf('rejections')]!.what, /: rate_limited$/)
  // The time since the gate first measured the breach, and the time of the rollback, both by the gateway's clock.
  assert.ok(last.breach!.forMs + last.rollback.tookMs <= 2_000, JSON.stringify([last.breach, last.rollback]))
  assert.deepEqual(last.rollback.armed, [])
})
