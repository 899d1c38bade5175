import assert from 'node:assert/strict'
import { test } from 'node:test'
import { CallUnderWay, type Session } from '../../../src/downstream/legacy/session.ts'
import { IDLE_MS, testSessions, UNUSED_MS } from '../test-sessions.ts'

test('a session can be found from the moment on that it is added, under an id that cannot be guessed', () => {
  const { sessions, draft } = testSessions()
  const session = draft(undefined)
  assert.equal(sessions.find(session.id), undefined)
  sessions.add(session)
  assert.equal(sessions.find(session.id), session)
  assert.match(session.id, /^[\x21-\x7e]{32,}$/)
  assert.notEqual(draft(undefined).id, draft(undefined).id)
  assert.equal(sessions.find(''), undefined)
})

test('there are no more sessions than the limit, drafts included', async () => {
  const { sessions, add, draft } = testSessions(2)
  const full = () => sessions.refusal('', '') !== undefined
  const first = add()
  assert.equal(full(), false)
  const second = draft(undefined)
  assert.equal(full(), true)
  await sessions.close(second)
  assert.equal(full(), false)
  add()
  assert.equal(full(), true)
  await sessions.close(first)
  await sessions.close(first)
  assert.equal(full(), false)
  assert.equal(sessions.size, 1)
})

test('when all sessions are closed, so are drafts, and none of them can be added afterwards', async () => {
  const { sessions, add, draft } = testSessions()
  add()
  const late = draft(undefined)
  const call = new CallUnderWay()
  late.inFlight.set(1, call)
  await sessions.closeAll()
  assert.equal(call.aborted, true)
  assert.equal(sessions.add(late), false)
  assert.equal(sessions.size, 0)
  assert.equal(sessions.find(late.id), undefined)
})

test('a client that hoards sessions is refused with the limit, and others are not', () => {
  const { sessions, add } = testSessions(10, 5)
  for (let n = 0; n < 5; n++) add(undefined, 'greedy')
  const error = sessions.refusal('greedy', '')
  assert.equal(error?.reason, 'overloaded')
  assert.match(error.message, /too many sessions of this client \(limit 5, gateway\.limits\.perClient\)/)
  assert.equal(sessions.refusal('bystander', ''), undefined)
  assert.equal(sessions.size, 5)
})

test('when there is no room at all, the client with the most sessions loses its longest idle session', async () => {
  const { clock, sessions, add } = testSessions(4, 3)
  const busy = add(undefined, 'greedy')
  busy.inFlight.set(1, new CallUnderWay())
  const idlest = add(undefined, 'greedy')
  await clock.advance(1_000)
  const hoard = [add(undefined, 'greedy'), add(undefined, 'other')]
  await clock.advance(1_000)
  assert.equal(sessions.refusal('bystander', ''), undefined)
  assert.deepEqual(
    [busy, idlest, ...hoard].map(({ id }) => sessions.find(id) !== undefined),
    [true, false, true, true],
  )
  add(undefined, 'bystander')
  // Now no client has many more sessions than others, so clients do not close each other's sessions in turn.
  assert.match(
    sessions.refusal('bystander', '')?.message ?? '',
    /too many sessions \(limit 4, gateway\.sessions\.max\)/,
  )
  assert.equal(sessions.size, 4)
})

test('among clients at one address, the client with the most sessions makes room', async () => {
  const { clock, sessions, add } = testSessions(10, 4)
  const of = (token: string) => ({ headers: { authorization: token } })
  const hoard = [1, 2, 3].map(() => add(undefined, 'proxy', of('greedy')))
  const other = add(undefined, 'proxy', of('other'))
  await clock.advance(1_000)
  assert.ok(sessions.refusal('proxy', hoard[0]!.principal))
  assert.equal(sessions.refusal('proxy', 'newcomer'), undefined)
  assert.equal(sessions.find(hoard[0]!.id), undefined)
  assert.equal(sessions.find(other.id), other)
  assert.equal(sessions.size, 3)
})

test('sessions that had no request make room before anybody is refused, those of the newcomer first', async () => {
  const { clock, sessions, add } = testSessions(5, 4)
  const unused = (client: string, token: string) =>
    add(undefined, client, { headers: { authorization: token }, used: false })
  const older = unused('proxy', 'other')
  await clock.advance(1_000)
  const own = unused('proxy', 'own')
  const inUse = (token: string) => add(undefined, 'proxy', { headers: { authorization: token } })
  const used = [inUse('a'), inUse('b')]
  await clock.advance(1_000)
  const isThere = (session: Session) => sessions.find(session.id) !== undefined
  assert.equal(sessions.refusal('proxy', own.principal), undefined)
  assert.deepEqual([isThere(own), isThere(older)], [false, true])
  used.push(inUse('c'))
  assert.equal(sessions.refusal('proxy', own.principal), undefined)
  assert.equal(isThere(older), false)
  used.push(inUse('d'))
  await clock.advance(1_000)
  assert.ok(sessions.refusal('proxy', own.principal), 'sessions in use made room')
  const elsewhere = unused('elsewhere', '')
  await clock.advance(1_000)
  for (const session of used) session.inFlight.set(1, new CallUnderWay())
  assert.equal(sessions.refusal('third', ''), undefined)
  assert.deepEqual([isThere(elsewhere), ...used.map(isThere)], [false, true, true, true, true])
})

test('a session that had no request is closed sooner', async () => {
  const { clock, sessions, add } = testSessions()
  const [used, unused] = [add(), add(undefined, '', { used: false })]
  await clock.advance(UNUSED_MS + 15_001)
  assert.equal(sessions.find(unused.id), undefined)
  assert.equal(sessions.find(used.id), used)
})

test('a session that is closed ends its calls and its conversations', async () => {
  const { sessions, server, upstream, add } = testSessions()
  const session = add()
  await server.upstreamSessions.of(session)
  const call = new CallUnderWay()
  session.inFlight.set(1, call)
  await sessions.close(session)
  assert.equal(sessions.find(session.id), undefined)
  assert.equal(call.aborted, true)
  assert.equal(upstream.upstreamSession.closes, 1)
  await sessions.close(session)
  assert.equal(upstream.upstreamSession.closes, 1)
})

test('a session that nobody uses is closed, and one that is used is not', async () => {
  const { clock, sessions, add } = testSessions()
  const [idle, used, busy] = [add(), add(), add()]
  busy.inFlight.set(1, new CallUnderWay())
  for (let minute = 0; minute < 5; minute++) {
    await clock.advance(IDLE_MS / 2)
    used.touch()
  }
  assert.deepEqual(
    [idle, used, busy].map(({ id }) => sessions.find(id) !== undefined),
    [false, true, true],
  )
  busy.inFlight.delete(1)
  busy.touch()
  await clock.advance(IDLE_MS)
  assert.equal(sessions.find(busy.id), busy)
  await clock.advance(15_001)
  assert.equal(sessions.size, 0)
})

test('a session whose server left the config ends with its last call, and is found until then', () => {
  const { sessions, live, generation, add } = testSessions()
  const [orphan, aggregate] = [add('s'), add()]
  const call = new CallUnderWay()
  orphan.inFlight.set(1, call)
  live.swap(generation())
  sessions.closeOrphans()
  assert.deepEqual([sessions.find(orphan.id), sessions.find(aggregate.id)], [orphan, aggregate])
  assert.equal(call.aborted, false)
  let ended = false
  orphan.close = () => void (ended = true)
  sessions.settle(orphan)
  assert.equal(ended, false)
  orphan.inFlight.delete(1)
  sessions.settle(orphan)
  assert.equal(ended, true)
})

test('settling a session that is not about to leave changes nothing', () => {
  const { sessions, add } = testSessions()
  const session = add()
  sessions.settle(session)
  assert.equal(sessions.find(session.id), session)
})

test('a storm of changes is told once to each session on the aggregate, and to no other', async () => {
  const { clock, sessions, add } = testSessions()
  const told: string[] = []
  const tells = (session: Session, name: string) => {
    session.tell = (text) =>
      void told.push(`${name} ${String((JSON.parse(text) as { method: string }).method)}`)
  }
  tells(add(), 'a')
  tells(add(), 'b')
  tells(add('s'), 'one server')
  for (let n = 0; n < 50; n++) sessions.tellChanged(['tools', 'resources', 'resourceTemplates'])
  assert.deepEqual(told, [])
  await clock.advance(100)
  const lists = ['notifications/tools/list_changed', 'notifications/resources/list_changed']
  assert.deepEqual(
    told,
    ['a', 'b'].flatMap((name) => lists.map((list) => `${name} ${list}`)),
  )
  sessions.tellChanged(['prompts'])
  await clock.advance(100)
  assert.equal(told.length, 6)
})

test('at the end all sessions are closed, and no timer is left', async () => {
  const { clock, sessions, live, generation, add } = testSessions()
  const calls = [add(), add('s')].map((session) => {
    const call = new CallUnderWay()
    session.inFlight.set(1, call)
    return call
  })
  sessions.tellChanged(['tools'])
  live.swap(generation())
  sessions.closeOrphans()
  await sessions.closeAll()
  assert.equal(sessions.size, 0)
  assert.deepEqual(
    calls.map(({ reason }) => (reason as { reason: string }).reason),
    ['shutting_down', 'shutting_down'],
  )
  assert.equal(clock.pending, 0)
})

test("a client's description counts from the draft until its session is closed", async () => {
  const { sessions, initializeParams, draft, add } = testSessions()
  const [drafted, open] = [draft('s'), add('s')]
  assert.ok(initializeParams.total > 0)
  await sessions.close(drafted)
  await sessions.close(drafted)
  assert.ok(initializeParams.total > 0)
  await sessions.close(open)
  assert.equal(initializeParams.total, 0)
})

test('a client that hoards stored descriptions makes room for others, at one address or from anywhere', async () => {
  const { clock, sessions, initializeParams, draft } = testSessions(100)
  const big = { clientInfo: { name: 'x'.repeat(1_000) } }
  const hoarder = { authorization: 'hoarder' }
  const session = (client: string, initializeParams: Readonly<Record<string, unknown>>, headers = {}) => {
    const made = draft(undefined, client, headers, initializeParams)
    sessions.add(made)
    return made
  }
  const first = session('shared', big, hoarder)
  const each = initializeParams.total
  initializeParams.share = { max: 6 * each, perClient: 4 * each }
  const bystander = session('shared', {}, { authorization: 'bystander' })
  await clock.advance(1_000)
  const hoard = [session('shared', big, hoarder), session('shared', big, hoarder)]
  await clock.advance(1_000)
  const refusal = (
    client: string,
    principal: string,
    initializeParams: Readonly<Record<string, unknown>> = big,
  ) => sessions.initializeRefusal(client, principal, initializeParams, {})
  // A principal's new initialize parameters may replace neither its own parameters nor anyone else's.
  assert.match(
    refusal('shared', first.principal)?.message ?? '',
    /too many bytes of clientInfo .* of this client/,
  )
  assert.equal(refusal('shared', 'newcomer'), undefined)
  const open = () => [first, bystander, ...hoard].map(({ id }) => sessions.find(id) !== undefined)
  assert.deepEqual(open(), [false, true, true, true])

  initializeParams.share = { max: initializeParams.total, perClient: 4 * each }
  assert.equal(refusal('elsewhere', ''), undefined)
  assert.deepEqual(open().filter(Boolean).length, 2)
})

test('among indistinguishable clients, larger descriptions make room for smaller ones, never the other way', async () => {
  const { clock, sessions, initializeParams, draft } = testSessions(100)
  const small = { clientInfo: { name: 'x' } }
  const big = { clientInfo: { name: 'x'.repeat(1_000) } }
  const hoard = [1, 2].map(() => draft(undefined, 'shared', {}, big))
  const modest = draft(undefined, 'shared', {}, small)
  for (const session of [...hoard, modest]) sessions.add(session)
  initializeParams.share = { max: 10 * initializeParams.total, perClient: initializeParams.total }
  await clock.advance(1_000)
  hoard[0]!.touch()
  assert.notEqual(sessions.initializeRefusal('shared', '', big, {}), undefined)
  assert.equal(sessions.size, 3)
  assert.equal(sessions.initializeRefusal('shared', '', small, {}), undefined)
  assert.deepEqual(
    [...hoard, modest].map(({ id }) => sessions.find(id) !== undefined),
    [true, false, true],
  )
})
