import assert from 'node:assert/strict'
import { test } from 'node:test'
import { Names } from '../../src/registry/names.ts'
import { pick, seeded } from '../support/random.ts'

const names = new Names('__')

test('a public name contains its server, and maps back to server and name', () => {
  assert.equal(names.expose('search', 'query'), 'search__query')
  assert.deepEqual(names.resolve('search__query'), { server: 'search', name: 'query' })
  assert.deepEqual(names.resolve('search__a__b'), { server: 'search', name: 'a__b' })
  assert.deepEqual(names.resolve('search___query'), { server: 'search', name: '_query' })
  assert.deepEqual(names.resolve('search__'), { server: 'search', name: '' })
})

test('a name without a server is no name of the gateway', () => {
  for (const name of ['', 'query', '__query', '_', '__']) assert.equal(names.resolve(name), undefined, name)
})

test('another separator works in the same way', () => {
  const dashed = new Names('-')
  assert.equal(dashed.expose('search', 'a-b'), 'search-a-b')
  assert.deepEqual(dashed.resolve('search-a-b'), { server: 'search', name: 'a-b' })
})

test('a tool has its own name where models take it, and else one that is always the same', () => {
  const longest = 't'.repeat(64 - 'search__'.length)
  for (const tool of ['query', 'a-b', longest])
    assert.equal(names.exposeTool('search', tool), `search__${tool}`)
  assert.equal(names.exposeTool('search', 'a.b/c'), 'search__a_b_c_fc7cd9c4')
  const shortened = [`${longest}t`, `${longest}u`, 'a.b', 'a/b', 'ü', '🦀', 'a b'].map((tool) =>
    names.exposeTool('search', tool),
  )
  assert.equal(new Set(shortened).size, shortened.length)
  for (const name of shortened) assert.match(name, /^search__[A-Za-z0-9_-]{1,47}_[0-9a-f]{8}$/)
  // The longest separator and name that a config accepts.
  const narrow = new Names('_'.repeat(8)).exposeTool('s'.repeat(40), 'x'.repeat(128))
  assert.match(narrow, /^s{40}_{8}x{7}_[0-9a-f]{8}$/)
})

test('two pairs never share a name, and every name maps back', () => {
  const random = seeded(20_260_728)
  const text = (alphabet: string) =>
    Array.from({ length: Math.floor(random() * 6) }, () => pick(random, [...alphabet])).join('')
  for (const separator of ['_', '__', '-', 'aa', '_a_']) {
    const subject = new Names(separator)
    const seen = new Map<string, string>()
    for (let i = 0; i < 5_000; i++) {
      const server = text('a_-')
      const name = text('a_-./:')
      // The rule of the config for a server's name.
      if (server === '' || (server + separator).indexOf(separator) !== server.length) continue
      const exposed = subject.expose(server, name)
      const pair = `${server} ${name}`
      assert.equal(seen.get(exposed) ?? pair, pair, `"${exposed}" with "${separator}"`)
      seen.set(exposed, pair)
      assert.deepEqual(subject.resolve(exposed), { server, name })
      for (const uri of [name, `ui://${name}`, `file:///${name}`]) {
        assert.deepEqual(subject.resolveUri(subject.exposeUri(server, uri)), { server, name: uri })
      }
    }
    assert.ok(seen.size > 500, `${seen.size} pairs`)
  }
})

test('a URI maps back byte by byte, with any content', () => {
  for (const uri of [
    'file:///etc/hosts',
    'https://user@example.com:8443/a%20b/?q=1&r=/../x#top',
    'urn:isbn:0451450523',
    'breakwater://other/file:///x',
    'ui://widget/main.html',
    'ui://__',
    'UI://widget',
    'postgres://db/a b/ü',
    '',
    '/',
    '//x',
  ]) {
    assert.deepEqual(names.resolveUri(names.exposeUri('files', uri)), { server: 'files', name: uri }, uri)
  }
})

test('a user interface keeps its scheme, which hosts look at', () => {
  assert.equal(names.exposeUri('files', 'ui://widget/main.html'), 'ui://files__widget/main.html')
  assert.equal(names.exposeUri('files', 'file:///a'), 'breakwater://files/file:///a')
})

test('any value put into a template maps back', () => {
  for (const [template, expanded] of [
    ['file:///{path}', 'file:///a/b.txt'],
    ['{scheme}://{host}/x', 'https://example.com/x'],
    ['ui://{widget}/{+page}', 'ui://chart/a/b'],
    ['db://{table}{?limit,offset}', 'db://users?limit=1&offset=2'],
  ] as const) {
    const exposed = names.exposeUri('files', template)
    let filled = exposed
    const values = {
      path: 'a/b.txt',
      scheme: 'https',
      host: 'example.com',
      table: 'users',
      widget: 'chart',
      '+page': 'a/b',
    }
    for (const [name, value] of Object.entries(values)) filled = filled.replace(`{${name}}`, value)
    filled = filled.replace('{?limit,offset}', '?limit=1&offset=2')
    assert.deepEqual(names.resolveUri(filled), { server: 'files', name: expanded })
  }
})

test('a URI that names no server is no URI of the gateway', () => {
  for (const uri of [
    '',
    'file:///a',
    'breakwater://',
    'breakwater://files',
    'ui://widget/main.html',
    'ui://',
    'ui://__x',
  ]) {
    assert.equal(names.resolveUri(uri), undefined, uri)
  }
})
