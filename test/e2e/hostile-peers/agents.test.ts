import assert from 'node:assert/strict'
import { after, before, test } from 'node:test'
import { until } from '../../support/until.ts'
import { cleanUp } from '../support/gateway.ts'
import { RawClient } from '../support/raw-client.ts'
import { stdioToolbox } from '../support/toolbox.ts'
import { Peer, postOf, Scene } from './scene.ts'

/** Connections of each kind, at the same time. */
const AT_ONCE = 10

let scene: Scene
let agent: RawClient
/** A whole request that the gateway answers. */
let call: string
/** One that takes a while. */
let slow: string

before(async () => {
  scene = await Scene.start({ attacked: stdioToolbox() }, {}, async (gateway) => {
    agent = await RawClient.open(gateway.mcp('attacked'))
    assert.equal(await agent.say('echo', { text: 'here' }), 'here')
  })
  const request = (name: string, args: object) =>
    postOf(
      '/mcp/attacked',
      { jsonrpc: '2.0', id: 'raw', method: 'tools/call', params: { name, arguments: args } },
      agent.headers,
    )
  call = request('echo', { text: 'x' })
  slow = request('sleep', { ms: 300 })
})
after(cleanUp)

const peers = () => Array.from({ length: AT_ONCE }, () => new Peer(scene.port))
const leaveAll = (all: readonly Peer[]) => all.forEach((peer) => peer.leave())

/** The bytes of a call with a line of its head replaced, or more of them. */
const withLines = (...lines: string[]) =>
  call.replace('\r\n', `\r\n${lines.map((line) => `${line}\r\n`).join('')}`)

/** What is no request, or none that may be served, and the status that it is refused with. */
const refused: Readonly<Record<string, readonly [RegExp, () => string | Buffer]>> = {
  'two lengths': [/^HTTP\/1\.1 400/, () => withLines('Content-Length: 5')],
  'a length and chunks': [/^HTTP\/1\.1 400/, () => withLines('Transfer-Encoding: chunked')],
  'a negative length': [/^HTTP\/1\.1 400/, () => call.replace(/Content-Length: \d+/, 'Content-Length: -5')],
  'a length that is no number': [
    /^HTTP\/1\.1 400/,
    () => call.replace(/Content-Length: \d+/, 'Content-Length: 5x'),
  ],
  'a body beyond the limit': [
    /^HTTP\/1\.1 413/,
    () => call.replace(/Content-Length: \d+/, 'Content-Length: 99999999999'),
  ],
  'an encoding that nobody knows': [
    /^HTTP\/1\.1 (400|501)/,
    () => call.replace(/Content-Length: \d+/, 'Transfer-Encoding: gzip'),
  ],
  'a chunk whose size is no number': [
    /^HTTP\/1\.1 400/,
    () =>
      call
        .replace(/Content-Length: \d+/, 'Transfer-Encoding: chunked')
        .replace(/\r\n\r\n[^]*/, '\r\n\r\nzz\r\nx\r\n'),
  ],
  'a chunk that is longer than any body': [
    /^HTTP\/1\.1 (400|413)/,
    () =>
      call
        .replace(/Content-Length: \d+/, 'Transfer-Encoding: chunked')
        .replace(/\r\n\r\n[^]*/, '\r\n\r\nFFFFFFFFFFFFFFFFF\r\nx'),
  ],
  'a head of 64 KiB': [/^HTTP\/1\.1 431/, () => withLines(`X-Long: ${'x'.repeat(65_536)}`)],
  'ten thousand lines of head': [
    /^HTTP\/1\.1 431/,
    () => withLines(...Array.from({ length: 10_000 }, (_, n) => `X-${n}: x`)),
  ],
  'a line without a colon': [/^HTTP\/1\.1 400/, () => withLines('nothing')],
  'no HTTP at all': [/^HTTP\/1\.1 400/, () => Buffer.from([0x16, 0x03, 0x01, 0x02, 0x00, 0xff])],
  'a host that is not ours': [/^HTTP\/1\.1 403/, () => call.replace('Host: 127.0.0.1', 'Host: evil.example')],
  'no host': [/^HTTP\/1\.1 40[03]/, () => call.replace('Host: 127.0.0.1\r\n', '')],
  'a path with a broken escape': [/^HTTP\/1\.1 40[04]/, () => call.replace('/mcp/attacked', '/mcp/%zz')],
  'a verb that nobody knows': [/^HTTP\/1\.1 40[045]/, () => call.replace('POST', 'BREW')],
  'invalid UTF-8 where a name should be': [
    /^HTTP\/1\.1 (200|400)/,
    () =>
      Buffer.from(
        call
          .replace('"echo"', '"\xff\xfe\xc3"')
          .replace(/Content-Length: (\d+)/, (_, n) => `Content-Length: ${Number(n) - 1}`),
        'latin1',
      ),
  ],
}

for (const [name, [status, bytes]] of Object.entries(refused))
  test(`a request with ${name} is refused, beside everybody else`, async () => {
    await scene.beside(async () => {
      const all = peers()
      for (const peer of all) peer.send(bytes())
      await Promise.all(all.map((peer) => peer.isOver()))
      for (const { text } of all) assert.match(text, status)
      leaveAll(all)
    })
  })

test('of all that was refused nothing is left', () => scene.isClean())

/** What is unusual, and served. */
const served: Readonly<Record<string, () => string>> = {
  'the whole URL in the first line': () => call.replace('/mcp/attacked', 'http://127.0.0.1/mcp/attacked'),
  'HTTP/1.0': () => call.replace('HTTP/1.1', 'HTTP/1.0'),
  'an upgrade to what nobody offers': () => withLines('Connection: Upgrade', 'Upgrade: websocket'),
  'chunks of a byte': () => {
    const [head = '', body = ''] = call.split('\r\n\r\n')
    const chunks = [...body].map((byte) => `1\r\n${byte}\r\n`).join('')
    return `${head.replace(/Content-Length: \d+/, 'Transfer-Encoding: chunked')}\r\n\r\n${chunks}0\r\n\r\n`
  },
}

for (const [name, bytes] of Object.entries(served))
  test(`a request with ${name} is answered`, async () => {
    const peer = new Peer(scene.port)
    peer.send(bytes())
    await until('it is answered', () => peer.text.includes('"result"') || peer.isClosed)
    assert.match(peer.text, /^HTTP\/1\.1 200/)
    peer.leave()
    await scene.isClean()
  })

test('many requests in one packet are answered one after the other', async () => {
  const peer = new Peer(scene.port)
  const bytes = Array.from({ length: 20 }, (_, n) => call.replace('"raw"', `"${100 + n}"`))
  await scene.beside(async () => {
    peer.send(bytes.join(''))
    await until('all are answered', () => peer.text.split('"result"').length === 21)
  })
  peer.leave()
  await scene.isClean()
})

test('heads and bodies that never come to an end cost a connection each, and end with it', async () => {
  await scene.beside(async () => {
    const trickling = [...peers(), ...peers()]
    const head = call.indexOf('\r\n\r\n')
    for (let at = 0; at < 40; at++) {
      for (const [n, peer] of trickling.entries()) peer.send(call[n % 2 === 0 ? at : head - 20 + at] ?? '')
      if (at === 0)
        for (const [n, peer] of trickling.entries()) if (n % 2 === 1) peer.send(call.slice(0, head - 20))
      await new Promise(setImmediate)
    }
    assert.equal(await agent.say('echo', { text: 'served beside them' }), 'served beside them')
    leaveAll(trickling)
  })
  await scene.isClean()
})

test('a connection may end at any byte of a request, in every way in which it can', async () => {
  await scene.beside(async () => {
    for (let at = 0; at < call.length; at += 9) {
      const [closing, halving, resetting] = [
        new Peer(scene.port),
        new Peer(scene.port, true),
        new Peer(scene.port),
      ]
      for (const peer of [closing, halving, resetting]) peer.send(call.slice(0, at))
      closing.socket.end()
      halving.socket.end()
      resetting.socket.resetAndDestroy()
      await halving.isOver()
      leaveAll([closing, halving])
    }
  })
  await scene.isClean()
})

test('whoever leaves, resets or half-closes while its call is under way leaves nothing behind', async () => {
  await scene.beside(async () => {
    const ways: ((peer: Peer) => void)[] = [
      (peer) => peer.leave(),
      (peer) => void peer.socket.end(),
      (peer) => void peer.socket.resetAndDestroy(),
    ]
    for (const go of ways) {
      const all = peers()
      for (const [n, peer] of all.entries()) peer.send(slow.replace('"raw"', `"${100 + n}"`))
      await scene.gateway.waitForCalls(AT_ONCE)
      for (const peer of all) go(peer)
      await scene.gateway.waitForCalls(0)
      leaveAll(all)
    }
  })
  await scene.isClean()
})

test('whoever sends a large request and is gone at once leaves nothing behind', async () => {
  await scene.beside(async () => {
    const all = peers()
    const large = postOf(
      '/mcp/attacked',
      {
        jsonrpc: '2.0',
        id: 'raw',
        method: 'tools/call',
        params: { name: 'sleep', arguments: { ms: 300, filler: 'x'.repeat(2_000_000) } },
      },
      agent.headers,
    )
    for (const [n, peer] of all.entries())
      peer.socket.write(large.replace('"raw"', `"${300 + n}"`), () => peer.socket.resetAndDestroy())
    await until('all are gone', () => all.every(({ isClosed }) => isClosed))
  })
  await scene.isClean()
})

test('whoever resets the connection in the middle of a reply leaves nothing behind', async () => {
  await scene.beside(async () => {
    const all = peers()
    const large = call
      .replace('"x"', `"${'x'.repeat(200_000)}"`)
      .replace(/Content-Length: (\d+)/, (_, n) => `Content-Length: ${Number(n) + 199_999}`)
    for (const [n, peer] of all.entries()) {
      peer.socket.once('data', () => peer.socket.resetAndDestroy())
      peer.send(large.replace('"raw"', `"${200 + n}"`))
    }
    await until('all are gone', () => all.every(({ isClosed }) => isClosed))
  })
  await scene.isClean()
})
