import assert from 'node:assert/strict'
import type { IncomingMessage } from 'node:http'
import { PassThrough } from 'node:stream'
import { test } from 'node:test'
import type { BodyRefusal } from '../../../src/downstream/http/bodies.ts'
import { Bodies, type BodyLimits, type BodyRefusalCause } from '../../../src/downstream/http/bodies.ts'
import { ManualClock } from '../../support/manual-clock.ts'
import { until } from '../../support/until.ts'

const generous: BodyLimits = {
  total: 1_000,
  perAddress: 1_000,
  count: 100,
  countPerAddress: 100,
  stalled: 10_000,
  whole: 60_000,
}

const session = { 'mcp-session-id': 'one' }

/** Bodies of at most 100 bytes by default, 80 before a session exists, and the refusals. */
function setUp(limits: Partial<BodyLimits> = {}, maxBody = 100) {
  const clock = new ManualClock()
  const refused: BodyRefusalCause[] = []
  const bodies = new Bodies(
    clock,
    { maxBody, maxFirst: 80, agentOf: (headers) => String(headers['mcp-session-id']) },
    { ...generous, ...limits },
    (cause) => void refused.push(cause),
  )
  return {
    clock,
    refused,
    bodies,
    /** Starts a body; returns it and its outcome. */
    begin(address = '10.0.0.1', headers: Record<string, string> = session) {
      const payload = Object.assign(new PassThrough(), { headers, socket: { remoteAddress: address } })
      const body: { payload: PassThrough; text?: string; error?: BodyRefusal } = { payload }
      bodies.read(payload as unknown as IncomingMessage, (error, text) => {
        assert.equal(body.text ?? body.error, undefined, 'the body ended twice')
        if (error !== null) body.error = error
        else if (text !== undefined) body.text = text
      })
      return body
    },
  }
}

test('a body is decoded as UTF-8, wherever its chunks are cut', async () => {
  const { bodies, begin } = setUp()
  const body = begin()
  for (const byte of Buffer.from('{"a":"é😀"}')) body.payload.write(Buffer.of(byte))
  await until('all bytes have come', () => bodies.bytes === 14)
  assert.equal(bodies.count, 1)
  body.payload.end()
  await until('the body is complete', () => body.text !== undefined)
  assert.equal(body.text, '{"a":"é😀"}')
  assert.deepEqual([bodies.count, bodies.bytes], [0, 0])
})

test('invalid UTF-8 is a parse error', async () => {
  const { begin, bodies } = setUp()
  const body = begin()
  body.payload.end(Buffer.of(0x22, 0xc3, 0x22))
  await until('the body is refused', () => body.error !== undefined)
  assert.equal(body.error?.statusCode, 400)
  assert.match(body.error.text, /-32700/)
  assert.equal(bodies.count, 0)
})

test('a body may come in small chunks, but not in very many of them', async () => {
  const { begin } = setUp({ total: 100_000, perAddress: 100_000 })
  const few = begin()
  for (let n = 0; n < 90; n++) few.payload.write('x')
  few.payload.end()
  await until('the body with few chunks is complete', () => few.text?.length === 90)
  const many = begin()
  many.payload.on('data', () => undefined)
  for (let n = 0; n < 1_001; n++) many.payload.write('')
  for (let n = 0; n < 90; n++) many.payload.write('x')
  many.payload.end()
  await until(
    'the body with empty chunks is complete, because empty chunks do not count',
    () => many.text?.length === 90,
  )
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
  await until('80 bytes are taken', () => bodies.bytes === 80)
  body.payload.write('x')
  await until('the next byte is refused', () => body.error !== undefined)
  assert.match(String(body.error?.message), /at most 80 bytes .*initialize/)
})

test('a too large body is refused at its header, or as soon as its bytes are too many', async () => {
  const { begin, bodies } = setUp()
  assert.equal(begin('10.0.0.1', { ...session, 'content-length': '101' }).error?.statusCode, 413)
  const body = begin()
  body.payload.write(Buffer.alloc(100))
  await until('100 bytes are taken', () => bodies.bytes === 100)
  body.payload.write(Buffer.alloc(1))
  await until('the next byte is refused', () => body.error !== undefined)
  assert.equal(body.error?.statusCode, 413)
  assert.deepEqual([bodies.count, bodies.bytes], [0, 0])
})

test('the server waits neither for a body without bytes, nor for long for a body that comes byte by byte', async () => {
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

/** Writes `size` bytes of a body; resolves when the gateway took or refused them. */
async function fill(body: ReturnType<ReturnType<typeof setUp>['begin']>, size: number) {
  let isWritten = false
  body.payload.write(Buffer.alloc(size, 'x'), () => (isWritten = true))
  await until(
    'the bytes were taken, or the body refused',
    () => isWritten && body.payload.readableLength === 0,
  )
  return body
}

test('bodies have a limit in bytes, in all and for one address, of which one may have four times what is free', async () => {
  const { begin, refused } = setUp({ total: 400, perAddress: 250 })
  const filled = (address: string, size: number) => fill(begin(address), size)
  const first = await filled('10.0.0.1', 90)
  await filled('10.0.0.1', 90)
  const third = await filled('10.0.0.1', 90)
  assert.deepEqual([first.error, third.error?.statusCode], [undefined, 503])
  assert.match(
    third.error?.message ?? '',
    /too many bytes of request bodies are on their way from this address \(270 of 250\), and no other agent has more$/,
  )
  assert.deepEqual(third.error?.headers, { 'retry-after': '1' })
  await filled('10.0.0.2', 90)
  const last = await filled('10.0.0.2', 90)
  assert.match(
    last.error?.message ?? '',
    /nearly too many bytes of request bodies are on their way \(360 of 400\), and no other address has more$/,
  )
  assert.deepEqual(refused, ['per_address', 'total'])
  first.payload.end()
  await until('the first body is complete', () => first.text !== undefined)
  assert.equal((await filled('10.0.0.2', 90)).error, undefined)
})

test('large bodies that an agent leaves unfinished make room for its small ones', async () => {
  const { begin, refused } = setUp({ perAddress: 250, total: 500 })
  const large = [begin(), begin()]
  for (const body of large) await fill(body, 85)
  const smallest = begin()
  smallest.payload.end('{"jsonrpc":"2.0"}')
  await until('the smallest body is complete', () => smallest.text !== undefined)
  assert.deepEqual(
    large.map(({ error }) => error),
    [undefined, undefined],
  )
  const small = begin()
  small.payload.end('y'.repeat(40))
  await until('the small body is complete', () => small.text !== undefined)
  assert.deepEqual([large[0]?.error?.statusCode, large[1]?.error], [503, undefined])
  assert.deepEqual(refused, ['per_address'])
})

const other = { 'mcp-session-id': 'other' }

test('an agent ends no body of another one with less at its address, and leaves it room for its largest', async () => {
  const { bodies, begin } = setUp({ perAddress: 800, total: 1_600, countPerAddress: 24 })
  const upload = await fill(begin('10.0.0.1', other), 50)
  for (let n = 0; n < 40; n++) await fill(begin(), 99)
  for (let n = 0; n < 40; n++) begin()
  const letGo = Array.from({ length: 8 }, () => bodies.hold('10.0.0.1', session, 100_000))
  assert.equal(upload.error, undefined)
  letGo.forEach((gone) => gone?.())
  await fill(upload, 50)
  upload.payload.end()
  await until('the upload is complete', () => upload.text?.length === 100)
  const next = begin('10.0.0.1', other)
  next.payload.end(Buffer.alloc(100, 'x'))
  await until('the next body is complete', () => next.text?.length === 100)
})

test('at a limit the slowest bodies go first: many agents with little each keep no other out', async () => {
  const { clock, begin } = setUp({ perAddress: 500, total: 1_000, countPerAddress: 12 })
  const each = (n: number) => ({ 'mcp-session-id': `attacker ${n}` })
  const idle = await Promise.all(Array.from({ length: 12 }, (_, n) => fill(begin('10.0.0.1', each(n)), 40)))
  await clock.advance(2_000)
  const upload = await fill(begin('10.0.0.1', other), 99)
  assert.deepEqual([upload.error, idle[0]?.error?.statusCode], [undefined, 503])
  upload.payload.end('x')
  await until('the upload is complete', () => upload.text?.length === 100)
  assert.equal(idle.filter(({ error }) => error === undefined).length, 9)
})

test('a slow body is spared while another agent has more than half of all bodies', async () => {
  const { clock, begin } = setUp({ perAddress: 500, total: 1_000, countPerAddress: 24 })
  const upload = await fill(begin('10.0.0.1', other), 50)
  await clock.advance(2_000)
  for (let n = 0; n < 40; n++) await fill(begin(), 99)
  for (let n = 0; n < 40; n++) begin()
  assert.equal(upload.error, undefined)
  await fill(upload, 50)
  upload.payload.end()
  await until('the upload is complete', () => upload.text?.length === 100)
})

test('bodies that are held for slow calls of one agent leave room to another at its address', async () => {
  const { bodies, begin } = setUp({ perAddress: 16 * 16_384, total: 32 * 16_384 })
  const letGo = Array.from({ length: 14 }, () => bodies.hold('10.0.0.1', session, 16_384))
  assert.equal((await fill(begin(), 50)).error?.statusCode, 503)
  assert.equal((await fill(begin('10.0.0.1', other), 100)).error, undefined)
  letGo.slice(0, 2).forEach((gone) => gone?.())
  assert.equal((await fill(begin(), 100)).error, undefined)
})

test('bodies have a limit in number, for which the oldest of the agent with the most goes, and the largest body always fits', async () => {
  const { begin, bodies } = setUp({ count: 3, countPerAddress: 2, total: 10, perAddress: 10 })
  const begun = (address?: string) => fill(begin(address), 1)
  const [oldest, next, first] = [await begun(), await begun(), await begun()]
  assert.match(
    oldest.error?.message ?? '',
    /^too many request bodies are on their way from this address \(3 of 2\), and no other agent has more$/,
  )
  await begun('10.0.0.2')
  const newest = await begun('10.0.0.3')
  assert.match(
    next.error?.message ?? '',
    /^too many request bodies are on their way \(4 of 3\), and no other address has more$/,
  )
  assert.deepEqual([first.error, newest.error, bodies.count], [undefined, undefined, 3])
  first.payload.end(Buffer.alloc(99, 'x'))
  await until('the first body is complete', () => first.text !== undefined)
})

/** Returns the reason a body was refused. */
const said = ({ error }: { readonly error?: BodyRefusal }) => error?.message ?? ''

const nth = (n: number) => ({ 'mcp-session-id': `agent ${n}` })

test('two agents with very many bodies end no slow one of a third', async () => {
  const { clock, bodies, begin } = setUp({ total: 10_000, perAddress: 10_000, countPerAddress: 40 })
  const upload = await fill(begin('10.0.0.1', other), 50)
  await clock.advance(3_000)
  for (let n = 0; n < 60; n++) await fill(begin('10.0.0.1', nth(n % 2)), 1)
  assert.equal(upload.error, undefined)
  await clock.advance(3_000)
  for (let n = 0; n < 60; n++) await fill(begin('10.0.0.1', nth(n % 2)), 1)
  assert.equal(upload.error, undefined)
  assert.ok(bodies.count > 30)
})

const MB = 1_000_000

test('a body that comes in bursts is as fast as it is on average', async () => {
  const limits = { total: 100 * MB, perAddress: 100 * MB, countPerAddress: 40, stalled: 60_000 }
  const { clock, bodies, begin } = setUp(limits, MB)
  const upload = await fill(begin('10.0.0.1', other), 26_400)
  await clock.advance(2_200)
  await fill(upload, 26_400)
  await clock.advance(2_000)
  for (let n = 0; n < 60; n++) await fill(begin('10.0.0.1', nth(n)), 5_000)
  assert.equal(upload.error, undefined)
  assert.equal(bodies.count, 40)
  await clock.advance(20_000)
  const next = await fill(begin('10.0.0.1', nth(60)), 5_000)
  assert.deepEqual([next.error, upload.error, bodies.count], [undefined, undefined, 40])
  for (let n = 61; n < 101; n++) await fill(begin('10.0.0.1', nth(n)), 5_000)
  assert.match(said(upload), /\(41 of 40\), and this one came slower than 4096 bytes a second$/)
})

test('a body that comes at once needs no place, and one of which nothing comes has to get one', async () => {
  const { clock, bodies, begin, refused } = setUp({ count: 8, countPerAddress: 4 })
  const inTheWay = await Promise.all(Array.from({ length: 4 }, (_, n) => fill(begin('10.0.0.1', nth(n)), 10)))
  const heads = Array.from({ length: 10 }, (_, n) => begin('10.0.0.1', nth(10 + n)))
  const whole = begin('10.0.0.1', { ...other, 'content-length': '2' })
  whole.payload.end('{}')
  await until('the whole body is complete', () => whole.text !== undefined)
  assert.deepEqual([whole.text, refused, bodies.count], ['{}', [], 4])
  await clock.advance(1_000)
  const errors = (some: readonly { error?: BodyRefusal }[]) => some.map(({ error }) => error?.statusCode)
  assert.deepEqual([errors(heads), errors(inTheWay)], [Array(10).fill(503), Array(4).fill(undefined)])
  assert.deepEqual([bodies.count, bodies.bytes], [4, 40])
})

test('where agents, or addresses, have as many bodies each, a newcomer is let in for the slowest', async () => {
  for (const same of [true, false]) {
    const limits = { total: 100 * MB, perAddress: 100 * MB, count: same ? 100 : 8, countPerAddress: 8 }
    const { clock, bodies, begin } = setUp(limits, MB)
    const begun = (n: number, size: number) => fill(begin(same ? '10.0.0.1' : `10.0.0.${n}`, nth(n)), size)
    const upload = await begun(0, 60_000)
    const held = []
    for (let n = 1; n < 8; n++) held.push(await begun(n, 25_000))
    await clock.advance(4_000)
    const newcomer = await begun(10, 10_000)
    assert.deepEqual([newcomer.error, held[0]?.error?.statusCode], [undefined, 503])
    for (let n = 20; n < 100; n++) await begun(n, 1_000)
    assert.deepEqual([upload.error, bodies.count], [undefined, 8])
  }
})

test('a client that leaves before its body is complete leaves nothing behind', async () => {
  const { begin, bodies } = setUp()
  const body = begin()
  body.payload.write('{')
  body.payload.destroy(new Error('aborted'))
  await until('the body is given up', () => body.error !== undefined)
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
  await until('the body is text', () => text.length === 1_048_576)
  assert.deepEqual([bodies.count, bodies.bytes], [0, 0])
})
