import assert from 'node:assert/strict'
import type { IncomingMessage } from 'node:http'
import { PassThrough } from 'node:stream'
import { test } from 'node:test'
import type { BodyRefusal } from '../../src/routes/bodies.ts'
import { Bodies, type BodyLimits, type BodyRefusalCause } from '../../src/routes/bodies.ts'
import { ManualClock } from '../support/manual-clock.ts'
import { until } from '../support/until.ts'

const generous: BodyLimits = {
  total: 1_000,
  perAddress: 1_000,
  count: 100,
  countPerAddress: 100,
  stalled: 10_000,
  whole: 60_000,
}

const session = { 'mcp-session-id': 'one' }

/** Bodies of at most 100 bytes, 80 where there is no session yet, and what was refused of them. */
function setUp(limits: Partial<BodyLimits> = {}) {
  const clock = new ManualClock()
  const refused: BodyRefusalCause[] = []
  const bodies = new Bodies(
    clock,
    { maxBody: 100, maxFirst: 80, agentOf: (headers) => String(headers['mcp-session-id']) },
    { ...generous, ...limits },
    (cause) => void refused.push(cause),
  )
  return {
    clock,
    refused,
    bodies,
    /** A body that begins to come, and what becomes of it. */
    begin(address = '10.0.0.1', headers: Record<string, string> = session) {
      const payload = Object.assign(new PassThrough(), { headers, socket: { remoteAddress: address } })
      const body: { payload: PassThrough; text?: string; error?: BodyRefusal } = { payload }
      bodies.read(payload as unknown as IncomingMessage, (error, text) => {
        assert.equal(body.text ?? body.error, undefined, 'it ends once')
        if (error !== null) body.error = error
        else if (text !== undefined) body.text = text
      })
      return body
    },
  }
}

test('a body is the text that it is in UTF-8, wherever it is cut', async () => {
  const { bodies, begin } = setUp()
  const body = begin()
  for (const byte of Buffer.from('{"a":"é😀"}')) body.payload.write(Buffer.of(byte))
  await until('all has come', () => bodies.bytes === 14)
  assert.equal(bodies.count, 1)
  body.payload.end()
  await until('it is complete', () => body.text !== undefined)
  assert.equal(body.text, '{"a":"é😀"}')
  assert.deepEqual([bodies.count, bodies.bytes], [0, 0])
})

test('what is no UTF-8 is a parse error', async () => {
  const { begin, bodies } = setUp()
  const body = begin()
  body.payload.end(Buffer.of(0x22, 0xc3, 0x22))
  await until('it is refused', () => body.error !== undefined)
  assert.equal(body.error?.statusCode, 400)
  assert.match(body.error.text, /-32700/)
  assert.equal(bodies.count, 0)
})

test('a body may come in small chunks, but not in very many of them', async () => {
  const { begin } = setUp({ total: 100_000, perAddress: 100_000 })
  const few = begin()
  for (let n = 0; n < 90; n++) few.payload.write('x')
  few.payload.end()
  await until('it is complete', () => few.text?.length === 90)
  const many = begin()
  many.payload.on('data', () => undefined)
  for (let n = 0; n < 1_001; n++) many.payload.write('')
  for (let n = 0; n < 90; n++) many.payload.write('x')
  many.payload.end()
  await until('it is complete: what holds nothing is no chunk', () => many.text?.length === 90)
})

test('without a session a body may only be as large as an initialize request', async () => {
  const { bodies, begin } = setUp()
  assert.equal(begin('10.0.0.1', { 'content-length': '81' }).error?.statusCode, 413)
  assert.equal(
    begin('10.0.0.1', { 'mcp-protocol-version': '2026-07-28', 'content-length': '81' }).error,
    undefined,
  )
  const body = begin('10.0.0.1', {})
  body.payload.write(Buffer.alloc(80))
  await until('so much is taken', () => bodies.bytes === 80)
  body.payload.write('x')
  await until('it is refused', () => body.error !== undefined)
  assert.match(String(body.error?.message), /at most 80 bytes .*initialize/)
})

test('a body that is too large is refused at its header, or as soon as it is', async () => {
  const { begin, bodies } = setUp()
  assert.equal(begin('10.0.0.1', { ...session, 'content-length': '101' }).error?.statusCode, 413)
  const body = begin()
  body.payload.write(Buffer.alloc(100))
  await until('so much is taken', () => bodies.bytes === 100)
  body.payload.write(Buffer.alloc(1))
  await until('no more is', () => body.error !== undefined)
  assert.equal(body.error?.statusCode, 413)
  assert.deepEqual([bodies.count, bodies.bytes], [0, 0])
})

test('a body of which nothing comes is not waited for, nor one that comes byte by byte for too long', async () => {
  const { clock, begin, bodies, refused } = setUp({ stalled: 5_000, whole: 20_000 })
  const silent = begin()
  const trickling = begin()
  for (let second = 0; second < 19; second++) {
    const beforehand = bodies.bytes
    trickling.payload.write('x')
    await until('a byte has come', () => bodies.bytes > beforehand || trickling.error !== undefined)
    await clock.advance(1_000)
    assert.equal(silent.error === undefined, second < 5, `second ${second}`)
  }
  assert.equal(silent.error?.statusCode, 408)
  trickling.payload.write('x')
  await clock.advance(2_000)
  assert.match(trickling.error?.text ?? '', /longer than 20s/)
  assert.deepEqual(refused, ['stalled', 'stalled'])
  await clock.advance(1_000)
  assert.deepEqual([bodies.count, bodies.bytes, clock.pending], [0, 0, 0])
})

/** So much of a body comes, or it is refused. */
async function fill(bodies: Bodies, body: ReturnType<ReturnType<typeof setUp>['begin']>, size: number) {
  const beforehand = bodies.bytes
  body.payload.write(Buffer.alloc(size, 'x'))
  await until('it was taken or refused', () => bodies.bytes !== beforehand || body.error !== undefined)
  return body
}

test('bodies have a limit in bytes, in all and for one address, of which one may have four times what is free', async () => {
  const { begin, bodies, refused } = setUp({ total: 400, perAddress: 250 })
  const filled = (address: string, size: number) => fill(bodies, begin(address), size)
  const first = await filled('10.0.0.1', 90)
  await filled('10.0.0.1', 90)
  const third = await filled('10.0.0.1', 90)
  assert.deepEqual([first.error, third.error?.statusCode], [undefined, 503])
  assert.match(third.error?.message ?? '', /of this agent \(270 of 250 are on their way from its address; /)
  assert.deepEqual(third.error?.headers, { 'retry-after': '1' })
  await filled('10.0.0.2', 90)
  const last = await filled('10.0.0.2', 90)
  assert.match(last.error?.message ?? '', /of this address \(360 of 400 are on their way; /)
  assert.deepEqual(refused, ['per_address', 'total'])
  first.payload.end()
  await until('the first is complete', () => first.text !== undefined)
  assert.equal((await filled('10.0.0.2', 90)).error, undefined)
})

test('large bodies that an agent leaves unfinished make room for its small ones', async () => {
  const { bodies, begin, refused } = setUp({ perAddress: 250, total: 500 })
  const large = [begin(), begin()]
  for (const body of large) await fill(bodies, body, 85)
  const smallest = begin()
  smallest.payload.end('{"jsonrpc":"2.0"}')
  await until('the smallest is complete', () => smallest.text !== undefined)
  assert.deepEqual(
    large.map(({ error }) => error),
    [undefined, undefined],
  )
  const small = begin()
  small.payload.end('y'.repeat(40))
  await until('the small one is complete', () => small.text !== undefined)
  assert.deepEqual([large[0]?.error?.statusCode, large[1]?.error], [503, undefined])
  assert.deepEqual(refused, ['per_address'])
})

const other = { 'mcp-session-id': 'other' }

test('an agent ends no body of another one with less at its address, and leaves it room for its largest', async () => {
  const { bodies, begin } = setUp({ perAddress: 800, total: 1_600, countPerAddress: 24 })
  const upload = await fill(bodies, begin('10.0.0.1', other), 50)
  for (let n = 0; n < 40; n++) await fill(bodies, begin(), 99)
  for (let n = 0; n < 40; n++) begin()
  const letGo = Array.from({ length: 8 }, () => bodies.hold('10.0.0.1', session, 100_000))
  assert.equal(upload.error, undefined)
  letGo.forEach((gone) => gone?.())
  await fill(bodies, upload, 50)
  upload.payload.end()
  await until('the upload is complete', () => upload.text?.length === 100)
  const next = begin('10.0.0.1', other)
  next.payload.end(Buffer.alloc(100, 'x'))
  await until('the next one is complete', () => next.text?.length === 100)
})

test('where a limit is met, what hardly moves goes first: many agents with little each keep no other out', async () => {
  const { clock, bodies, begin } = setUp({ perAddress: 500, total: 1_000, countPerAddress: 12 })
  const each = (n: number) => ({ 'mcp-session-id': `attacker ${n}` })
  const idle = await Promise.all(
    Array.from({ length: 12 }, (_, n) => fill(bodies, begin('10.0.0.1', each(n)), 40)),
  )
  await clock.advance(2_000)
  const upload = begin('10.0.0.1', other)
  assert.deepEqual([upload.error, idle[0]?.error?.statusCode], [undefined, 503])
  await fill(bodies, upload, 99)
  upload.payload.end('x')
  await until('the upload is complete', () => upload.text?.length === 100)
  assert.equal(idle.filter(({ error }) => error === undefined).length, 9)
})

test('a slow body is spared while another agent has more than half of all bodies', async () => {
  const { clock, bodies, begin } = setUp({ perAddress: 500, total: 1_000, countPerAddress: 24 })
  const upload = await fill(bodies, begin('10.0.0.1', other), 50)
  await clock.advance(2_000)
  for (let n = 0; n < 40; n++) await fill(bodies, begin(), 99)
  for (let n = 0; n < 40; n++) begin()
  assert.equal(upload.error, undefined)
  await fill(bodies, upload, 50)
  upload.payload.end()
  await until('the upload is complete', () => upload.text?.length === 100)
})

test('bodies that are held for slow calls of one agent leave room to another at its address', async () => {
  const { bodies, begin } = setUp({ perAddress: 16 * 16_384, total: 32 * 16_384 })
  const letGo = Array.from({ length: 14 }, () => bodies.hold('10.0.0.1', session, 16_384))
  assert.equal((await fill(bodies, begin(), 50)).error?.statusCode, 503)
  assert.equal((await fill(bodies, begin('10.0.0.1', other), 100)).error, undefined)
  letGo.slice(0, 2).forEach((gone) => gone?.())
  assert.equal((await fill(bodies, begin(), 100)).error, undefined)
})

test('bodies have a limit in number, for which the oldest of the agent with the most goes, and the largest body always fits', async () => {
  const { begin, bodies } = setUp({ count: 3, countPerAddress: 2, total: 10, perAddress: 10 })
  const [oldest, next, first] = [begin(), begin(), begin()]
  assert.match(oldest.error?.message ?? '', /of this agent \(3 of 2 are on their way from its address/)
  begin('10.0.0.2')
  const newest = begin('10.0.0.3')
  assert.match(next.error?.message ?? '', /of this address \(4 of 3 are on their way; /)
  assert.deepEqual([first.error, newest.error, bodies.count], [undefined, undefined, 3])
  first.payload.end(Buffer.alloc(100, 'x'))
  await until('it is complete', () => first.text !== undefined)
})

test('a client that leaves before its body is complete leaves nothing behind', async () => {
  const { begin, bodies } = setUp()
  const body = begin()
  body.payload.write('{')
  body.payload.destroy(new Error('aborted'))
  await until('it is given up', () => body.error !== undefined)
  assert.deepEqual([bodies.count, bodies.bytes], [0, 0])
})

test('a large body is read with breaks, becomes text in a turn of its own, and counts until then', async () => {
  const clock = new ManualClock()
  const bodies = new Bodies(
    clock,
    { maxBody: 10_000_000 },
    { ...generous, total: 10_000_000, perAddress: 10_000_000 },
    () => undefined,
  )
  const payload = Object.assign(new PassThrough({ highWaterMark: 10_000_000 }), {
    headers: session,
    socket: { remoteAddress: '10.0.0.1' },
  })
  let text = ''
  let pauses = 0
  payload.on('pause', () => pauses++)
  bodies.read(payload as unknown as IncomingMessage, (_, body) => (text = body ?? ''))
  const ended = new Promise((resolve) => payload.once('end', resolve))
  for (let n = 0; n < 16; n++) payload.write('x'.repeat(65_536))
  payload.end()
  await ended
  assert.deepEqual([pauses, bodies.count, text.length], [4, 1, 0])
  await until('it is text', () => text.length === 1_048_576)
  assert.deepEqual([bodies.count, bodies.bytes], [0, 0])
})
