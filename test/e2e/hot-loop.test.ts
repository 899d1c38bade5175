import assert from 'node:assert/strict'
import { after, test } from 'node:test'
import { until } from '../support/until.ts'
import { FlakyServer } from './support/flaky.ts'
import { cleanUp, Gateway, type Json } from './support/gateway.ts'
import { ModernClient } from './support/modern-client.ts'
import { RawClient } from './support/raw-client.ts'
import { stdioToolbox } from './support/toolbox.ts'

const LOOP = 200

/** Calls that a limit lets through at once. */
const BURST = 20

/** A rate that gives nothing back while a test runs, however slow the machine is. */
const RATE = '1/h'

/** Rejections of one kind that the log tells in a second. */
const TOLD_PER_SECOND = 10

after(cleanUp)

/** How many of these responses are errors for this reason. */
const countOf = (reason: string, responses: readonly Json[]) =>
  responses.filter(({ error }) => (error as { data?: Json } | undefined)?.data?.reason === reason).length

/** How many calls have reached the server. */
const received = async (client: RawClient) =>
  (await client.say('received')).split(',').filter((method) => method === 'tools/call').length

test('a session that calls in a loop is refused at the door, others are not, and a reload changes it', async () => {
  const servers = { box: stdioToolbox() }
  const limits = { perSession: { rate: RATE, burst: BURST }, rejectionPause: 0 }
  const gateway = await Gateway.start({ servers, gateway: { limits } })
  await gateway.waitFor('up', 'box')
  const [hot, other] = [await RawClient.open(gateway.mcp('box')), await RawClient.open(gateway.mcp('box'))]
  const before = await received(other)
  const responses = []
  for (let n = 0; n < LOOP; n++) responses.push(await hot.call('echo', { text: 'x' }))
  const refused = countOf('rate_limited', responses)
  assert.ok(refused >= LOOP - BURST, `${refused} of ${LOOP} were refused`)
  assert.equal((await received(other)) - before, LOOP - refused + 1)
  assert.equal(await gateway.metric('breakwater_requests_refused_total', 'limit="per_session"'), refused)
  assert.equal(gateway.log.filter(({ msg }) => msg === 'call').length, 0)

  await gateway.reconfigure({ servers })
  await until(
    'there is no limit any more',
    async () => countOf('rate_limited', [await hot.call('echo')]) === 0,
  )
  for (let n = 0; n < 50; n++) assert.equal(countOf('rate_limited', [await hot.call('echo')]), 0)
})

test('a client with a new tenant for each call has the rate of one', async () => {
  const policies = { defaults: { rateLimit: { rate: RATE, burst: BURST, per: 'tenant' } } }
  const gateway = await Gateway.start({
    servers: { box: stdioToolbox() },
    gateway: { limits: { rejectionPause: 0 } },
    policies,
  })
  await gateway.waitFor('up', 'box')
  const client = new ModernClient(gateway.mcp('box'))
  const body = () => client.request('tools/call', { name: 'echo', arguments: { text: 'x' } })
  const responses: Json[] = []
  for (let n = 0; n < LOOP; n++) {
    const { messages } = await client.post(body(), { 'x-breakwater-tenant': `tenant ${n}` })
    responses.push(...messages)
  }
  const refused = countOf('rate_limited', responses)
  assert.ok(refused >= LOOP - BURST, `${refused} of ${LOOP} were refused`)
  // The log has some of them, and counts the others.
  await until('the log has told', () => gateway.log.some(({ msg }) => msg === 'call'))
  const lines = gateway.log.filter(({ msg }) => msg === 'call')
  // A slow loop lasts for more seconds, each of which has lines of its own: the log says for how many.
  const [first = NaN, last = NaN] = [lines[0], lines.at(-1)].map((line) => Date.parse(String(line?.time)))
  const seconds = Math.ceil((last - first) / 1_000) + 1
  const told = `${lines.length} lines in ${seconds} s for ${refused} calls`
  assert.ok(lines.length <= TOLD_PER_SECOND * seconds, told)
  const leftOut = lines.reduce((sum, line) => sum + Number(line.leftOut ?? 0), 0)
  assert.ok(lines.length + leftOut <= refused, `${told}, which leave out ${leftOut}`)
})

test('who loops over rejections gets them later and later, and all else at once', async () => {
  const policies = { overrides: [{ match: { tool: 'fail' }, rateLimit: { rate: RATE, burst: 1 } }] }
  const gateway = await Gateway.start({ servers: { box: stdioToolbox() }, policies })
  await gateway.waitFor('up', 'box')
  const [client, other] = [await RawClient.open(gateway.mcp('box')), await RawClient.open(gateway.mcp('box'))]
  const held = () => gateway.metric('breakwater_rejections_held_total')
  // The first is let through, the second is told when to come back, and ten more may come too soon.
  for (let n = 0; n < 12; n++) await client.call('fail')
  assert.equal(await held(), 0)
  // Ten of each second are free: on a busy machine a loop may not be faster than that.
  let before = 0
  await until('some are held', async () => {
    const responses = await Promise.all(Array.from({ length: 30 }, () => client.call('fail')))
    assert.equal(countOf('rate_limited', responses), 30)
    before = (await held()) ?? 0
    return before > 0
  })
  await client.call('echo', { text: 'x' })
  await other.call('fail')
  assert.equal(await held(), before)
})

test('two tools that hang leave a third one of the same server its slots', async () => {
  const flaky = await FlakyServer.start()
  await flaky.behave({ read: { hang: true }, write: { hang: true } })
  const policies = { defaults: { bulkhead: { concurrent: 8, queue: 8, maxWait: '1m' }, hedge: false } }
  const gateway = await Gateway.start({ servers: { flaky: { url: flaky.url } }, policies })
  await gateway.waitFor('up', 'flaky')
  const stuck = await RawClient.open(gateway.mcp('flaky'))
  const hung = ['read', 'write'].flatMap((name) => Array.from({ length: 20 }, () => name))
  void Promise.allSettled(hung.map((name) => stuck.call(name)))
  await gateway.waitForCalls(4 + 2 + 4 + 2)
  const third = await RawClient.open(gateway.mcp('flaky'))
  for (let n = 0; n < 3; n++) {
    const response = await third.call('typed')
    assert.ok('result' in response, JSON.stringify(response))
  }
})
