import assert from 'node:assert/strict'
import fc from 'fast-check'
import { mirroredHeaders, readEnvelope } from '../../../src/downstream/modern/envelope.ts'
import {
  CLIENT_CAPABILITIES_KEY,
  decodeHeaderValue,
  encodeHeaderValue,
  HEADER_MISMATCH,
  MODERN_VERSION,
  PROTOCOL_VERSION_KEY,
} from '../../../src/protocol/versions.ts'
import {
  allowsHost,
  allowsOrigin,
  hasToken,
  hostGuard,
  isCrossOrigin,
} from '../../../src/downstream/http/server.ts'
import { wellFormed } from '../arbitraries.ts'
import { target, type Target } from '../target.ts'

const text = fc
  .oneof(
    fc.string({ unit: 'binary', maxLength: 12 }),
    fc.constantFrom('', ' ', ' a', '=?base64?', '?=', '=?base64?QQ==?=', 'a b', '\t', '\r\nx: y', '\0'),
    fc.base64String({ maxLength: 12 }).map((base64) => `=?base64?${base64}?=`),
  )
  .map(wellFormed)

const label = fc.string({ unit: fc.constantFrom('a', 'b', 'z', '0', '9', '-'), minLength: 1, maxLength: 6 })
const ours = fc.constantFrom('localhost', '127.0.0.1', '[::1]', 'gateway.example', '127.9.9.9', 'LOCALHOST')
const allowed = ['gateway.example', 'Other.Example:8443']

export const headerTargets: readonly Target[] = [
  target('a value that goes into a header comes out of it, and never breaks a line', text, (value) => {
    const header = encodeHeaderValue(value)
    assert.match(header, /^[\x21-\x7e]([\x20-\x7e]*[\x21-\x7e])?$/)
    assert.equal(decodeHeaderValue(header), value)
  }),

  target('any header is decoded or refused', text, (header) => {
    const value = decodeHeaderValue(header)
    if (value !== undefined) assert.equal(decodeHeaderValue(encodeHeaderValue(value)), wellFormed(value))
  }),

  target(
    'a request whose headers say the same as its body is taken, and one whose headers do not is refused',
    fc.record({
      name: text,
      said: fc.option(text, { nil: undefined }),
      method: fc.constantFrom('tools/call', 'ping'),
    }),
    ({ name, said, method }) => {
      const _meta = { [PROTOCOL_VERSION_KEY]: MODERN_VERSION, [CLIENT_CAPABILITIES_KEY]: {} }
      const value = { jsonrpc: '2.0', id: 1, method, params: { name, _meta } }
      const headers = {
        'mcp-protocol-version': MODERN_VERSION,
        'mcp-method': method,
        'mcp-name': encodeHeaderValue(said ?? name),
      }
      const read = readEnvelope(headers, { text: JSON.stringify(value), value })
      if (method === 'ping' || said === undefined || said === name)
        assert.equal('method' in read && read.method, method)
      else assert.match(JSON.stringify(read), new RegExp(`${HEADER_MISMATCH}`))
    },
  ),

  target(
    'the headers that mirror arguments are those of that name, as they are',
    fc.dictionary(
      fc.oneof(
        label.map((name) => `mcp-param-${name}`),
        label,
        fc.constantFrom('mcp-param-', 'mcp-params', '__proto__', 'mcp-param-__proto__'),
      ),
      fc.oneof(text, fc.array(text, { maxLength: 2 })),
    ),
    (headers) => {
      const expected = Object.entries(headers).filter(
        ([name, value]) => name.startsWith('mcp-param-') && typeof value === 'string',
      )
      const mirrored = mirroredHeaders(headers)
      assert.deepEqual(mirrored, expected.length === 0 ? undefined : Object.fromEntries(expected))
    },
  ),

  target(
    'a host is served by its name, with any port and in any case, and no name around it is',
    fc.tuple(ours, fc.nat({ max: 65_535 }), label),
    ([host, port, more]) => {
      const serves = (header: string) => allowsHost(header, '127.0.0.1', allowed)
      assert.ok(serves(host) && serves(`${host}:${port}`) && serves(host.toUpperCase()))
      if (!host.startsWith('['))
        for (const other of [
          `${host}.${more}.example`,
          `${more}-${host}`,
          `${more}.example`,
          `${more}.${host}.example`,
        ])
          assert.equal(serves(other), false, other)
      assert.equal(serves(`${host}.${more}.example:${port}`), false)
    },
  ),

  target(
    'any Host header is judged, each time alike, and none ends the gateway',
    fc.array(fc.oneof(text, ours, label), { maxLength: 90, size: 'max' }),
    (hosts) => {
      const guard = hostGuard('127.0.0.1', allowed)
      for (const host of [...hosts, undefined, ...hosts])
        assert.equal(guard(host), allowsHost(host, '127.0.0.1', allowed))
    },
    100,
  ),

  target(
    'a page of another origin never counts as one of ours, and any Origin header is judged',
    fc.tuple(label, ours, fc.nat({ max: 65_535 }), text),
    ([name, host, port, other]) => {
      assert.equal(allowsOrigin(`https://${name}.example`, ['https://app.example']), name === 'app')
      assert.equal(allowsOrigin(`http://${host}.${name}.example`, []), false)
      assert.equal(allowsOrigin(`http://localhost:${port}`, []), true)
      assert.equal(typeof allowsOrigin(other, []), 'boolean')
      const page = (origin: string) => isCrossOrigin({ origin, host: `${host}:${port}` })
      assert.equal(page(`http://${host}:${port}`), false)
      assert.equal(page(`http://${host}:${port}.${name}`), true)
      assert.equal(page(`http://${name}.example`), true)
    },
  ),

  target('only the token itself opens the control plane', fc.tuple(text, text), ([given, token]) => {
    assert.equal(hasToken(`Bearer ${token}`, token), true)
    assert.equal(hasToken(`Bearer ${given}`, token), given === token)
    assert.equal(hasToken(given, token), /^bearer $/i.test(given.slice(0, 7)) && given.slice(7) === token)
  }),
]
