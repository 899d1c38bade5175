import assert from 'node:assert/strict'
import { test } from 'node:test'
import type { Message } from '../../src/mesh/call.ts'
import { Names } from '../../src/registry/names.ts'
import { exposeMessage, namesServer, restoreMessage, routeRequest } from '../../src/registry/references.ts'

const names = new Names('__')
const endpoint = { names, servers: new Map() }

const read = (text: string): Message => ({ text, value: JSON.parse(text) as Message['value'] })

/** A request with these parameters, and unknown members. */
const request = (method: string, params: string) =>
  read(`{"x":1.0,"jsonrpc":"2.0","id":12345678901234567890,"method":"${method}","params":${params}}`)

test('each request finds its named server, and is sent in this server’s names', () => {
  for (const [method, params, expected] of [
    [
      'tools/call',
      '{"name":"s__a__b","arguments":{"name":"s__x","n":1e2}}',
      '{"name":"a__b","arguments":{"name":"s__x","n":1e2}}',
    ],
    ['prompts/get', '{ "name" : "s__p" }', '{ "name" : "p" }'],
    ['resources/read', '{"uri":"breakwater://s/file:///a"}', '{"uri":"file:///a"}'],
    ['resources/subscribe', '{"uri":"ui://s__w/x"}', '{"uri":"ui://w/x"}'],
    ['resources/unsubscribe', '{"uri":"breakwater://s/x"}', '{"uri":"x"}'],
    [
      'completion/complete',
      '{"ref":{"type":"ref/prompt","name":"s__p"}}',
      '{"ref":{"type":"ref/prompt","name":"p"}}',
    ],
    ['completion/complete', '{"ref":{"uri":"breakwater://s/f:{x}"}}', '{"ref":{"uri":"f:{x}"}}'],
    ['tasks/get', '{"taskId":"s__1"}', '{"taskId":"1"}'],
    ['tasks/result', '{"taskId":"s__1"}', '{"taskId":"1"}'],
    ['tasks/cancel', '{"taskId":"s__1"}', '{"taskId":"1"}'],
  ] as const) {
    assert.ok(namesServer(method))
    const routed = routeRequest(method, request(method, params), endpoint)
    assert.equal(routed?.server, 's', method)
    assert.equal(routed?.message.text, request(method, expected).text)
    assert.deepEqual(routed?.message.value, JSON.parse(routed.message.text))
  }
})

test('a name that is written with escapes is read as JSON reads it', () => {
  const routed = routeRequest(
    'tools/call',
    request('tools/call', '{"\\u006eame":"\\u0073__t\\u00e9"}'),
    endpoint,
  )
  assert.equal(routed?.name, 'té')
  assert.equal(routed?.message.text, request('tools/call', '{"\\u006eame":"té"}').text)
})

test('a tool that is shown under a shortened name is called by its own', () => {
  const servers = new Map([
    ['s', { toolShownAs: (shown: string) => (shown === 'a_b_1' ? 'a.b' : undefined) }],
  ])
  const routed = routeRequest('tools/call', request('tools/call', '{"name":"s__a_b_1"}'), { names, servers })
  assert.deepEqual(
    [routed?.name, routed?.message.text],
    ['a.b', request('tools/call', '{"name":"a.b"}').text],
  )
  const prompt = routeRequest('prompts/get', request('prompts/get', '{"name":"s__a_b_1"}'), {
    names,
    servers,
  })
  assert.equal(prompt?.name, 'a_b_1', 'prompts are not shortened')
})

test('a request that names no server has no target', () => {
  for (const params of [
    '{}',
    '{"name":"t"}',
    '{"name":7}',
    '{"name":null}',
    '{"uri":"breakwater://s/x"}',
    '{"name":["s__t"]}',
  ]) {
    assert.equal(routeRequest('tools/call', request('tools/call', params), endpoint), undefined, params)
  }
  assert.equal(
    routeRequest('tools/call', read('{"jsonrpc":"2.0","id":1,"method":"tools/call"}'), endpoint),
    undefined,
  )
})

test('a method of any other name names no server, whatever objects inherit', () => {
  for (const method of [
    'ping',
    'tools/list',
    'x',
    '',
    'constructor',
    'toString',
    '__proto__',
    'hasOwnProperty',
  ]) {
    assert.equal(namesServer(method), false, method)
    assert.equal(routeRequest(method, request(method, '{"name":"s__t"}'), endpoint), undefined, method)
    const notification = request(method, '{"uri":"a","taskId":"1"}')
    assert.equal(exposeMessage('s', notification, names), notification, method)
  }
})

test('notifications that name something of their server name the server, too', () => {
  const updated = request('notifications/resources/updated', '{"uri" : "file:///a","title":1.0}')
  assert.equal(
    exposeMessage('s', updated, names).text,
    request('notifications/resources/updated', '{"uri" : "breakwater://s/file:///a","title":1.0}').text,
  )
  const status = exposeMessage('s', request('notifications/tasks/status', '{"taskId":"1"}'), names)
  assert.equal((status.value.params as { taskId: string }).taskId, 's__1')
  for (const text of [
    '{"method":"notifications/resources/updated"}',
    '{"method":"notifications/message","params":{"uri":"a"}}',
  ]) {
    const message = read(text)
    assert.equal(exposeMessage('s', message, names), message)
  }
})

test('ids of a task name its server for agents, and the answers use the ids of the server', () => {
  const meta = (taskId: string) =>
    `{"x":1.0,"_meta":{"progressToken":1,"io.modelcontextprotocol/related-task":{"taskId":${taskId}}}}`
  const answer = (taskId: string) => read(`{"jsonrpc":"2.0","id":"q","result":${meta(taskId)}}`)
  for (const method of ['sampling/createMessage', 'notifications/progress', 'notifications/tasks/status']) {
    const [theirs, exposed] = [request(method, meta('"1"')), request(method, meta('"s__1"'))]
    assert.equal(exposeMessage('s', theirs, names).text, exposed.text, method)
    const restored = restoreMessage('s', exposed, names)
    assert.equal(restored.text, theirs.text, method)
    assert.deepEqual(restored.value, theirs.value)
  }
  assert.equal(restoreMessage('s', answer('"s__1"'), names).text, answer('"1"').text)
  // Ids of other servers stay as the agent wrote them.
  for (const taskId of ['"1"', '"other__1"', '7', 'null']) {
    const message = answer(taskId)
    assert.equal(restoreMessage('s', message, names), message, taskId)
  }
  const error = read('{"jsonrpc":"2.0","id":"q","error":{"code":1,"message":"no"}}')
  assert.equal(restoreMessage('s', error, names), error)
})
