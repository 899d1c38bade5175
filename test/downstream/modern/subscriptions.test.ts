import assert from 'node:assert/strict'
import { test, type TestContext } from 'node:test'
import { Post } from '../../../src/downstream/modern/post.ts'
import { readFilter, Subscription, type Filter } from '../../../src/downstream/modern/subscriptions.ts'
import { SUBSCRIPTION_ID_KEY } from '../../../src/protocol/versions.ts'
import { holdResponses } from '../../support/held-responses.ts'
import { ManualClock } from '../../support/manual-clock.ts'
import { testGuards } from '../test-guards.ts'
import { message, reply } from './test-modern.ts'

const all = {
  tools: { listChanged: true },
  prompts: { listChanged: true },
  resources: { listChanged: true, subscribe: true },
}

const nothing: Filter = {
  toolsListChanged: false,
  promptsListChanged: false,
  resourcesListChanged: false,
  resourceSubscriptions: [],
}

async function subscription(t: TestContext, filter: Partial<Filter>, id: string | number = 'listen:0') {
  const { response, client } = await (await holdResponses(t))()
  const post = new Post(response, {
    guards: testGuards(new ManualClock()),
    onGone: () => undefined,
  })
  return { client, subscription: new Subscription(id, { ...nothing, ...filter }, post) }
}

test('a filter holds what was asked for and is offered; unknown keys do no harm', () => {
  const given = {
    toolsListChanged: true,
    promptsListChanged: false,
    other: 1,
    resourceSubscriptions: ['a://b', 'a://b'],
  }
  assert.deepEqual(readFilter(given, all), {
    ...nothing,
    toolsListChanged: true,
    resourceSubscriptions: ['a://b'],
  })
  assert.deepEqual(readFilter(given, {}), nothing)
  assert.deepEqual(
    readFilter({ resourceSubscriptions: ['a://b'] }, { resources: { listChanged: true } }),
    nothing,
  )
})

test('an invalid filter is not parsed', () => {
  const uris = Array.from({ length: 1_001 }, (_, index) => `a://${index}`)
  for (const given of [
    undefined,
    null,
    [],
    'all',
    { resourceSubscriptions: 'a' },
    { resourceSubscriptions: [1] },
    { resourceSubscriptions: uris },
  ]) {
    assert.equal(readFilter(given, all), undefined)
  }
})

test('a subscription says what it will tell, tells just that under its own id, and says goodbye', async (t) => {
  for (const id of ['listen:0', 42]) {
    const { subscription: open, client } = await subscription(
      t,
      { toolsListChanged: true, resourceSubscriptions: ['a://b'] },
      id,
    )
    open.acknowledge()
    open.tell(message({ method: 'notifications/prompts/list_changed' }))
    open.tell(message({ method: 'notifications/resources/updated', params: { uri: 'a://other' } }))
    open.tell(message({ method: 'notifications/message', params: { level: 'info' } }))
    open.tell(message({ method: 'notifications/tools/list_changed' }))
    const theirs = { [SUBSCRIPTION_ID_KEY]: 'of the server', kept: 1 }
    open.tell(message({ method: 'notifications/resources/updated', params: { uri: 'a://b', _meta: theirs } }))
    open.end()
    const { messages } = await reply(client)
    const mark = { [SUBSCRIPTION_ID_KEY]: id }
    assert.deepEqual(messages, [
      {
        jsonrpc: '2.0',
        method: 'notifications/subscriptions/acknowledged',
        params: { notifications: { toolsListChanged: true, resourceSubscriptions: ['a://b'] }, _meta: mark },
      },
      { jsonrpc: '2.0', method: 'notifications/tools/list_changed', params: { _meta: mark } },
      {
        jsonrpc: '2.0',
        method: 'notifications/resources/updated',
        params: { uri: 'a://b', _meta: { ...mark, kept: 1 } },
      },
      { jsonrpc: '2.0', id, result: { resultType: 'complete', _meta: mark } },
    ])
  }
})

test('a subscription without deliverable notifications is empty', async (t) => {
  assert.equal((await subscription(t, {})).subscription.isEmpty, true)
  assert.equal((await subscription(t, { promptsListChanged: true })).subscription.isEmpty, false)
  assert.equal((await subscription(t, { resourceSubscriptions: ['a://b'] })).subscription.isEmpty, false)
})
