import assert from 'node:assert/strict'
import type { IncomingHttpHeaders } from 'node:http'
import { test } from 'node:test'
import { mirroredHeaders, readEnvelope } from '../../../src/downstream/modern/envelope.ts'
import {
  CLIENT_CAPABILITIES_KEY,
  CLIENT_INFO_KEY,
  LOG_LEVEL_KEY,
  MODERN_VERSION,
  PROTOCOL_VERSION_KEY,
  isModern,
} from '../../../src/protocol/versions.ts'
import type { Json } from '../../support/memory-pipe.ts'
import { headersFor, meta, modern } from './test-modern.ts'

/** Returns the envelope of a request, or the refusal with its text parsed. */
function read(body: Json, headers: IncomingHttpHeaders = headersFor(body)) {
  const read = readEnvelope(headers, { text: JSON.stringify(body), value: body })
  if (!('status' in read)) return { envelope: read }
  const { id, error } = JSON.parse(read.text) as { id: unknown; error: { code: number; data?: Json } }
  return { status: read.status, id, code: error.code, data: error.data }
}

/** Returns the body without one key of its `_meta`. */
function lacking(key: string): Json {
  const rest = Object.fromEntries(Object.entries(meta).filter(([name]) => name !== key))
  return { jsonrpc: '2.0', id: 7, method: 'tools/list', params: { _meta: rest } }
}

const call = modern(7, 'tools/call', { name: 'plain' })
const named = (version: unknown) => modern(7, 'tools/list', {}, { [PROTOCOL_VERSION_KEY]: version })
const under = (headers: IncomingHttpHeaders) => read(call, { ...headersFor(call), ...headers })

test('a complete request tells who its client is', () => {
  const { envelope } = read(modern(0, 'tools/call', { name: 'plain' }, { [LOG_LEVEL_KEY]: 'info' }))
  assert.deepEqual(envelope, {
    id: 0,
    method: 'tools/call',
    clientInfo: meta[CLIENT_INFO_KEY],
    capabilities: {},
    logLevel: 'info',
  })
})

test('a client need not say its name', () => {
  assert.ok(read(lacking(CLIENT_INFO_KEY)).envelope)
})

const refusals: Readonly<
  Record<string, [ReturnType<typeof read>, status: number, code: number, data: unknown]>
> = {
  'a request without params': [
    read({ jsonrpc: '2.0', id: 7, method: 'tools/list' }),
    400,
    -32602,
    { envelope: { missing: ['_meta'] } },
  ],
  'a request without _meta': [
    read({ jsonrpc: '2.0', id: 7, method: 'tools/list', params: {} }),
    400,
    -32602,
    { envelope: { missing: ['_meta'] } },
  ],
  'a request without a version': [
    read(lacking(PROTOCOL_VERSION_KEY)),
    400,
    -32602,
    { envelope: { missing: [PROTOCOL_VERSION_KEY] } },
  ],
  'a request without capabilities': [
    read(lacking(CLIENT_CAPABILITIES_KEY)),
    400,
    -32602,
    { envelope: { key: CLIENT_CAPABILITIES_KEY, problem: 'missing' } },
  ],
  'capabilities that are no object': [
    read(modern(7, 'tools/list', {}, { [CLIENT_CAPABILITIES_KEY]: [] })),
    400,
    -32602,
    { envelope: { key: CLIENT_CAPABILITIES_KEY, problem: 'invalid' } },
  ],
  'another version in the header than in the body': [
    under({ 'mcp-protocol-version': '2025-11-25' }),
    400,
    -32020,
    {
      mismatch: {
        message: 'Header mismatch: MCP-Protocol-Version',
        header: '2025-11-25',
        body: MODERN_VERSION,
      },
    },
  ],
  'no version in the header': [
    under({ 'mcp-protocol-version': undefined }),
    400,
    -32020,
    {
      mismatch: {
        message: 'Header mismatch: MCP-Protocol-Version',
        header: '(missing)',
        body: MODERN_VERSION,
      },
    },
  ],
  'an unknown version': [
    read(named('v999.0.0'), { 'mcp-protocol-version': 'v999.0.0', 'mcp-method': 'tools/list' }),
    400,
    -32022,
    { supported: [MODERN_VERSION], requested: 'v999.0.0' },
  ],
  'no Mcp-Method': [
    under({ 'mcp-method': undefined }),
    400,
    -32020,
    { mismatch: { message: 'Header mismatch: Mcp-Method', header: '(missing)', body: 'tools/call' } },
  ],
  'another Mcp-Name': [
    under({ 'mcp-name': 'other' }),
    400,
    -32020,
    { mismatch: { message: 'Header mismatch: Mcp-Name', header: 'other', body: 'plain' } },
  ],
}
for (const [what, [seen, status, code, data]] of Object.entries(refusals)) {
  test(`${what}: HTTP ${status}, ${code}, under the id of the request`, () => {
    assert.deepEqual(seen, { status, id: 7, code, data })
  })
}

test('a method in other case, a missing name and broken base64 are mismatches', () => {
  for (const headers of [
    { 'mcp-method': 'Tools/Call' },
    { 'mcp-name': undefined },
    { 'mcp-name': '=?base64?cGxhaW4?=' },
  ]) {
    assert.equal(under(headers).code, -32020, JSON.stringify(headers))
  }
})

test('names in base64 and with blanks around are compared by what they say', () => {
  for (const name of ['=?base64?cGxhaW4=?=', '  plain  '])
    assert.ok(under({ 'mcp-name': name }).envelope, name)
})

test('each method has its own place for the name', () => {
  for (const [method, params] of [
    ['prompts/get', { name: 'n' }],
    ['resources/read', { uri: 'n' }],
    ['tasks/get', { taskId: 'n' }],
  ] as const) {
    const body = modern(1, method, params)
    assert.ok(read(body).envelope, method)
    assert.equal(read(body, { ...headersFor(body), 'mcp-name': 'm' }).code, -32020, method)
  }
})

test('a call that names nothing needs no header: its server judges', () => {
  assert.ok(read(modern(1, 'tools/call')).envelope)
})

test('a message that is no request is refused without an id', () => {
  for (const body of [
    { jsonrpc: '2.0', id: 1, result: {} },
    { jsonrpc: '2.0', id: null, method: 'x' },
    { neither: 1 },
  ]) {
    assert.deepEqual(read(body, {}), { status: 400, id: null, code: -32600, data: undefined })
  }
})

test('an incomplete _meta is told of before a mismatch, an unknown version before a missing name', () => {
  assert.equal(read(lacking(PROTOCOL_VERSION_KEY), { 'mcp-protocol-version': 'v1' }).code, -32602)
  const future = modern(1, 'tools/call', { name: 'n' }, { [PROTOCOL_VERSION_KEY]: '2027-01-01' })
  assert.equal(
    read(future, { 'mcp-protocol-version': '2027-01-01', 'mcp-method': 'tools/call' }).code,
    -32022,
  )
})

test('_meta or a header determines the era, never the method', () => {
  assert.equal(isModern({}, modern(1, 'initialize')), true)
  assert.equal(isModern({ 'mcp-protocol-version': MODERN_VERSION }, { method: 'initialize' }), true)
  assert.equal(isModern({}, { method: 'server/discover' }), false)
  assert.equal(isModern({ 'mcp-protocol-version': '2025-06-18' }, { method: 'tools/list' }), false)
})

test('headers that mirror arguments are picked out, byte for byte', () => {
  assert.equal(mirroredHeaders({ 'mcp-name': 'x' }), undefined)
  assert.deepEqual(mirroredHeaders({ 'mcp-param-region': '=?base64?SGVsbG8?=', accept: '*/*' }), {
    'mcp-param-region': '=?base64?SGVsbG8?=',
  })
})
