import assert from 'node:assert/strict'
import { after, before, test } from 'node:test'
import { until } from '../../support/until.ts'
import { cleanUp } from '../support/gateway.ts'
import { RawClient } from '../support/raw-client.ts'
import { postOf, RawSocket } from '../support/raw-socket.ts'
import { stdioToolbox } from '../support/toolbox.ts'
import { Scene } from './scene.ts'

/** Concurrent connections of each kind. */
const AT_ONCE = 10

let scene: Scene
let agent: RawClient
/** A complete request the gateway answers. */
let call: string
/** A complete request with a slow answer. */
let slow: string

before(async () => {
  scene = await Scene.start({ servers: { attacked: stdioToolbox() } }, async (gateway) => {
    agent = await RawClient.open(gateway.mcp('attacked'))
    assert.equal(await agent.say('echo', { text: 'here' }), 'here')
  })
  const request = (name: string, args: object) =>
    postOf(agent.url, agent.headers, {
      ...{ jsonrpc: '2.0', id: 'raw', method: 'tools/call' },
      params: { name, arguments: args },
    })
  call = request('echo', { text: 'x' })
  slow = request('sleep', { ms: 300 })
})
after(cleanUp)

const peer = (allowHalfOpen = false) => RawSocket.open(agent.url, {}, { allowHalfOpen })
const peers = (count = AT_ONCE) => Promise.all(Array.from({ length: count }, () => peer()))
const leaveAll = (all: readonly RawSocket[]) => all.forEach((one) => one.close())
/** Waits for an answer, or for the end of the connection. */
const isOver = (one: RawSocket) =>
  until('the gateway answers or closes', () => one.isClosed || one.text.includes('\r\n\r\n'))

/** Returns the bytes of a call with lines of its head replaced or added. */
const withLines = (...lines: string[]) =>
  call.replace('\r\n', `\r\n${lines.map((line) => `${line}\r\n`).join('')}`)

const chunked = (body: string) =>
  call.replace(/content-length: \d+/, 'Transfer-Encoding: chunked').replace(/\r\n\r\n[^]*/, `\r\n\r\n${body}`)

/** Invalid heads beyond the recorded exchanges, with the status of their refusal. */
const refused: Readonly<Record<string, readonly [RegExp, () => string]>> = {
  'a negative length': [/^HTTP\/1\.1 400/, () => call.replace(/content-length: \d+/, 'Content-Length: -5')],
  'an encoding that nobody knows': [
    /^HTTP\/1\.1 (400|501)/,
    () => call.replace(/content-length: \d+/, 'Transfer-Encoding: gzip'),
  ],
  'a chunk whose size is no number': [/^HTTP\/1\.1 400/, () => chunked('zz\r\nx\r\n')],
  'a chunk that is longer than any body': [/^HTTP\/1\.1 (400|413)/, () => chunked('FFFFFFFFFFFFFFFFF\r\nx')],
  'a head of 64 KiB': [/^HTTP\/1\.1 431/, () => withLines(`X-Long: ${'x'.repeat(65_536)}`)],
  'ten thousand lines of head': [
    /^HTTP\/1\.1 431/,
    () => withLines(...Array.from({ length: 10_000 }, (_, n) => `X-${n}: x`)),
  ],
  'a line without a colon': [/^HTTP\/1\.1 400/, () => withLines('nothing')],
  'no HTTP at all': [/^HTTP\/1\.1 400/, () => '\x16\x03\x01\x02\0\xff'],
}

for (const [name, [status, bytes]] of Object.entries(refused))
  test(`a request with ${name} is refused, beside everybody else`, async () => {
    await scene.beside(async () => {
      const all = await peers()
      for (const one of all) void one.write(Buffer.from(bytes(), 'latin1'))
      await Promise.all(all.map(isOver))
      for (const { text } of all) assert.match(text, status)
      leaveAll(all)
    })
  })

test('the refused requests leave nothing behind', () => scene.isClean())

const served: Readonly<Record<string, () => string>> = {
  'the whole URL in the first line': () => call.replace('/mcp/attacked', 'http://127.0.0.1/mcp/attacked'),
  'HTTP/1.0': () => call.replace('HTTP/1.1', 'HTTP/1.0'),
  'an upgrade to what nobody offers': () => withLines('Connection: Upgrade', 'Upgrade: websocket'),
  'chunks of a byte': () => {
    const [head = '', body = ''] = call.split('\r\n\r\n')
    const chunks = [...body].map((byte) => `1\r\n${byte}\r\n`).join('')
    return `${head.replace(/content-length: \d+/, 'Transfer-Encoding: chunked')}\r\n\r\n${chunks}0\r\n\r\n`
  },
}

for (const [name, bytes] of Object.entries(served))
  test(`a request with ${name} is answered`, async () => {
    const one = await peer()
    await one.write(bytes())
    await until('the request is answered', () => one.text.includes('"result"') || one.isClosed)
    assert.match(one.text, /^HTTP\/1\.1 200/)
    one.close()
    await scene.isClean()
  })

test('the gateway answers many requests in one packet in order', async () => {
  const one = await peer()
  const bytes = Array.from({ length: 20 }, (_, n) => call.replace('"raw"', `"${100 + n}"`))
  await scene.beside(async () => {
    await one.write(bytes.join(''))
    await until('all requests are answered', () => one.text.split('"result"').length === 21)
  })
  one.close()
  await scene.isClean()
})

test('heads and bodies that never come to an end cost a connection each, and end with it', async () => {
  await scene.beside(async () => {
    const trickling = await peers(2 * AT_ONCE)
    const head = call.indexOf('\r\n\r\n')
    for (let at = 0; at < 40; at++) {
      for (const [n, one] of trickling.entries())
        void one.write(call[n % 2 === 0 ? at : head - 20 + at] ?? '')
      if (at === 0)
        for (const [n, one] of trickling.entries()) if (n % 2 === 1) void one.write(call.slice(0, head - 20))
      await new Promise(setImmediate)
    }
    assert.equal(await agent.say('echo', { text: 'served beside them' }), 'served beside them')
    leaveAll(trickling)
  })
  await scene.isClean()
})

test('a connection may end at any byte of a request, by FIN or reset', async () => {
  await scene.beside(async () => {
    for (let at = 0; at < call.length; at += 9) {
      const [closing, halving, resetting] = [await peer(), await peer(true), await peer()]
      for (const one of [closing, halving, resetting]) void one.write(call.slice(0, at))
      closing.socket.end()
      halving.socket.end()
      resetting.socket.resetAndDestroy()
      await isOver(halving)
      leaveAll([closing, halving])
    }
  })
  await scene.isClean()
})

test('a client that leaves, resets or half-closes during its call leaves nothing behind', async () => {
  await scene.beside(async () => {
    const ways: ((one: RawSocket) => void)[] = [
      (one) => one.close(),
      (one) => void one.socket.end(),
      (one) => void one.socket.resetAndDestroy(),
    ]
    for (const go of ways) {
      const all = await peers()
      for (const [n, one] of all.entries()) void one.write(slow.replace('"raw"', `"${100 + n}"`))
      await scene.gateway.waitForCalls(AT_ONCE)
      for (const one of all) go(one)
      await scene.gateway.waitForCalls(0)
      leaveAll(all)
    }
  })
  await scene.isClean()
})

test('a client that sends a large request and leaves at once leaves nothing behind', async () => {
  await scene.beside(async () => {
    const all = await peers()
    const params = { name: 'sleep', arguments: { ms: 300, filler: 'x'.repeat(2_000_000) } }
    const large = { jsonrpc: '2.0', method: 'tools/call', params }
    for (const [n, one] of all.entries())
      void one
        .write(postOf(agent.url, agent.headers, { ...large, id: `${300 + n}` }))
        .then(() => one.socket.resetAndDestroy())
    await until('all connections are gone', () => all.every(({ isClosed }) => isClosed))
  })
  await scene.isClean()
})

test('a client that resets the connection during a reply leaves nothing behind', async () => {
  await scene.beside(async () => {
    const all = await peers()
    const params = { name: 'echo', arguments: { text: 'x'.repeat(200_000) } }
    const large = { jsonrpc: '2.0', method: 'tools/call', params }
    for (const [n, one] of all.entries()) {
      one.socket.once('data', () => one.socket.resetAndDestroy())
      void one.write(postOf(agent.url, agent.headers, { ...large, id: `${200 + n}` }))
    }
    await until('all connections are gone', () => all.every(({ isClosed }) => isClosed))
  })
  await scene.isClean()
})
