import assert from 'node:assert/strict'
import { test } from 'node:test'
import type { StateKey } from '../../src/mesh/policy.ts'
import { States } from '../../src/mesh/state.ts'
import { collectStates } from '../../src/telemetry/scrape.ts'
import { createMetrics } from '../../src/telemetry/metrics.ts'
import { ManualClock } from '../support/manual-clock.ts'

/** States under keys, with settable gauges, and their scrape. */
function scraped() {
  const state = new States(new ManualClock())
  const metrics = createMetrics()
  const put = (key: Partial<StateKey> & { kind: string }, snapshot: object) =>
    state.get({ set: 'default', server: 's', ...key }, () => ({ ...snapshot, snapshot: () => snapshot }))
  async function scrape(name: string): Promise<string[]> {
    collectStates(metrics, (kind) => state.list(kind))
    const text = await metrics.registry.metrics()
    return text.split('\n').filter((line) => /^breakwater_(\w+)/.exec(line)?.[1] === name)
  }
  return { state, metrics, put, scrape }
}

const line = (tool: string, state: string, value: number, arm?: string) => {
  const labels = { server: 's', tool, state, ...(arm !== undefined && { arm }) }
  const text = Object.entries(labels).map(([name, label]) => `${name}="${label}"`)
  return `breakwater_breaker_state{${text.join()}} ${value}`
}

test('a breaker is 1 for its state and 0 for the others', async () => {
  for (const now of ['closed', 'open', 'half_open']) {
    const { put, scrape } = scraped()
    put({ kind: 'breaker', tool: 't', replica: 0 }, { state: now })
    assert.deepEqual(
      await scrape('breaker_state'),
      ['closed', 'open', 'half_open'].map((state) => line('t', state, state === now ? 1 : 0)),
    )
  }
})

test('the gauge of a tool with several replicas counts replicas by state', async () => {
  const { put, scrape } = scraped()
  for (const [replica, state] of ['open', 'closed', 'open'].entries())
    put({ kind: 'breaker', tool: 't', endpoint: `${replica}`, replica }, { state })
  assert.deepEqual(await scrape('breaker_state'), [
    line('t', 'closed', 1),
    line('t', 'open', 2),
    line('t', 'half_open', 0),
  ])
})

test('requests that are no calls of a listed tool stand under a name of their own', async () => {
  const { put, scrape } = scraped()
  put({ kind: 'breaker', replica: 0 }, { state: 'open' })
  assert.ok((await scrape('breaker_state')).includes(line('_other', 'open', 1)))
})

test('each scrape counts anew, and removed breakers are gone', async () => {
  const { state, put, scrape } = scraped()
  put({ kind: 'breaker', tool: 't' }, { state: 'open' })
  put({ kind: 'retry-budget' }, { balance: 3 })
  await scrape('breaker_state')
  assert.ok((await scrape('breaker_state')).includes(line('t', 'open', 1)))
  state.settle(() => undefined)
  assert.deepEqual(await scrape('breaker_state'), [])
  assert.deepEqual(await scrape('retry_budget_balance'), [])
})

test('the budget of the gateway has no server, and each server’s budget has its name', async () => {
  const { put, scrape } = scraped()
  put({ kind: 'retry-budget', server: '' }, { balance: 10 })
  put({ kind: 'retry-budget' }, { balance: 2.5 })
  assert.deepEqual(await scrape('retry_budget_balance'), [
    'breakwater_retry_budget_balance 10',
    'breakwater_retry_budget_balance{server="s"} 2.5',
  ])
})

test('states of arms stand under their arm, as long as the config has it', async () => {
  const { put, scrape, metrics } = scraped()
  metrics.arms.follow(['ab/control', 'ab/treatment'])
  put({ kind: 'breaker', tool: 't' }, { state: 'closed' })
  put({ kind: 'breaker', set: 'ab/treatment', tool: 't' }, { state: 'open' })
  put({ kind: 'retry-budget', set: 'ab/treatment' }, { balance: 1 })
  put({ kind: 'retry-budget', set: 'ab/treatment', server: '' }, { balance: 4 })
  assert.deepEqual(await scrape('breaker_state'), [
    line('t', 'closed', 1),
    line('t', 'open', 0),
    line('t', 'half_open', 0),
    line('t', 'closed', 0, 'ab/treatment'),
    line('t', 'open', 1, 'ab/treatment'),
    line('t', 'half_open', 0, 'ab/treatment'),
  ])
  assert.deepEqual(await scrape('retry_budget_balance'), [
    'breakwater_retry_budget_balance{server="s",arm="ab/treatment"} 1',
    'breakwater_retry_budget_balance{arm="ab/treatment"} 4',
  ])
  metrics.arms.follow([])
  assert.equal((await scrape('breaker_state')).length, 3)
  assert.deepEqual(await scrape('retry_budget_balance'), [])
})

test('named sets that are no arms are not mixed into the numbers of the default one', async () => {
  const { put, scrape } = scraped()
  put({ kind: 'breaker', set: 'cautious', tool: 't' }, { state: 'open' })
  put({ kind: 'retry-budget', set: 'cautious' }, { balance: 1 })
  assert.deepEqual([...(await scrape('breaker_state')), ...(await scrape('retry_budget_balance'))], [])
})
