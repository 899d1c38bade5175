import assert from 'node:assert/strict'
import { test } from 'node:test'
import { glob, globsMeet, matcher } from '../../src/mesh/match.ts'
import { pick, seeded } from '../support/random.ts'

test('a star is any run of characters, also none', () => {
  for (const name of ['', 'a', 'read/file', 'a\nb', '**']) assert.ok(glob('*')(name))
  assert.deepEqual(['read_', 'read_file', 'read', 'xread_file'].map(glob('read_*')), [
    true,
    true,
    false,
    false,
  ])
  assert.deepEqual(['a', 'ab', 'acb', 'abc'].map(glob('a*b')), [false, true, true, false])
  assert.deepEqual(['', 'a'].map(glob('**')), [true, true])
  assert.deepEqual(['ab', 'ba', 'b'].map(glob('a**')), [true, false, false])
})

test('a question mark is exactly one character', () => {
  assert.deepEqual(['', 'a', 'ab', '\n', '?'].map(glob('?')), [false, true, false, true, true])
  assert.deepEqual(['v1', 'v', 'v12'].map(glob('v?')), [true, false, false])
  assert.deepEqual(['a', 'ab', 'abc'].map(glob('?*?')), [false, true, true])
})

test('every other character is itself', () => {
  for (const text of ['a.b', 'a+', '(a)', '[a]', '{a}', 'a|b', '^a$', 'a\\b', 'a/b', '-', '$&', 'ü']) {
    assert.ok(glob(text)(text), text)
    assert.ok(glob(`${text}*`)(`${text}x`), text)
    assert.equal(glob(`${text}*`)(`x${text}`), false, text)
  }
  assert.deepEqual(['axb', 'a.b'].map(glob('a.b')), [false, true])
  assert.deepEqual(['axb1', 'a.b1'].map(glob('a.b?')), [false, true])
  assert.equal(glob('a+*')('aa'), false)
  assert.equal(glob('[ab]*')('a'), false)
  assert.equal(glob('\\d?')('55'), false)
})

test('a glob holds for the whole name, and letters count as they are', () => {
  assert.equal(glob('read')('read_file'), false)
  assert.equal(glob('read')('Read'), false)
  assert.equal(glob('')('a'), false)
  assert.equal(glob('')(''), true)
})

/** The definition of the pattern, word by word. */
function holds(pattern: string, name: string): boolean {
  if (pattern === '') return name === ''
  if (pattern[0] === '*')
    return holds(pattern.slice(1), name) || (name !== '' && holds(pattern, name.slice(1)))
  return (
    name !== '' && (pattern[0] === '?' || pattern[0] === name[0]) && holds(pattern.slice(1), name.slice(1))
  )
}

test('globs of any shape match as their definition says', () => {
  const random = seeded(20_260_728)
  const text = (alphabet: string, most: number) =>
    Array.from({ length: Math.floor(random() * most) }, () => pick(random, [...alphabet])).join('')
  let held = 0
  for (let i = 0; i < 20_000; i++) {
    const pattern = text('ab.*?', 7)
    const name = text('ab.', 8)
    const expected = holds(pattern, name)
    assert.equal(glob(pattern)(name), expected, `"${pattern}" on "${name}"`)
    if (expected) held++
  }
  assert.ok(held > 1_000, `${held} held`)
})

test('two globs meet where some name matches both', () => {
  const texts = (alphabet: string, longest: number): string[] =>
    longest === 0
      ? ['']
      : ['', ...texts(alphabet, longest - 1).flatMap((text) => [...alphabet].map((letter) => letter + text))]
  const names = texts('ab', 6)
  const matched = texts('ab*?', 3).map((pattern) => ({
    pattern,
    names: new Set(names.filter(glob(pattern))),
  }))
  for (const one of matched)
    for (const other of matched) {
      const meet = [...one.names].some((name) => other.names.has(name))
      assert.equal(globsMeet(one.pattern, other.pattern), meet, `"${one.pattern}" and "${other.pattern}"`)
    }
  assert.ok(globsMeet(undefined, 'a'))
  assert.equal(globsMeet('*a'.repeat(500), `${'*b'.repeat(500)}c`), false)
})

test('a very long name costs little time', { timeout: 20_000 }, () => {
  const name = 'a'.repeat(1_000_000)
  assert.equal(glob('*a*a*a*a*b')(name), false)
  assert.equal(glob('*a?a*b*')(name), false)
  assert.equal(glob('*a*a*a*a')(name), true)
})

test('a match holds when all its parts hold', () => {
  const match = matcher({ server: 'search', method: 'tools/*', tool: 'query_*' })
  assert.equal(match('search', 'tools/call', 'query_all'), true)
  assert.equal(match('other', 'tools/call', 'query_all'), false)
  assert.equal(match('search', 'prompts/get', 'query_all'), false)
  assert.equal(match('search', 'tools/call', 'write'), false)
})

test('a part that a match does not name may be anything', () => {
  assert.equal(matcher({})('search', 'ping', undefined), true)
  assert.equal(matcher({ server: undefined, method: 'ping' })('search', 'ping', undefined), true)
  assert.equal(matcher({ server: 's*' })('search', 'tools/call', 'x'), true)
})

test('a match that names a tool holds for no call without one', () => {
  assert.equal(matcher({ tool: '*' })('search', 'tools/list', undefined), false)
  assert.equal(matcher({ tool: '*' })('search', 'tools/call', ''), true)
})
