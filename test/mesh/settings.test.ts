import assert from 'node:assert/strict'
import { test } from 'node:test'
import { mayApply, Settings } from '../../src/mesh/settings.ts'

const settings = new Settings({
  defaults: { retry: 'plain', breaker: 'plain' },
  overrides: [
    { match: { server: 'search' }, retry: 'of search', effect: 'write' },
    { match: { tool: 'query_*' }, retry: false, effect: 'read_only' },
    { match: { method: 'prompts/*' }, breaker: 'of prompts' },
  ],
  sets: { cautious: { retry: 'cautious' } },
})

test('overrides apply by server, method and tool, in the order of the config', () => {
  assert.deepEqual(settings.appliedTo('search', 'tools/call', 'query_all'), [0, 1])
  assert.deepEqual(settings.appliedTo('other', 'tools/call', 'query_all'), [1])
  assert.deepEqual(settings.appliedTo('search', 'prompts/get', undefined), [0, 2])
  assert.deepEqual(settings.appliedTo('other', 'ping', undefined), [])
})

test('a set wins over overrides, the last override over the others, and all of them over the defaults', () => {
  assert.deepEqual(settings.of('retry', 'cautious', [0, 1]), ['cautious', 'set cautious'])
  assert.deepEqual(settings.of('retry', 'default', [0, 1]), [false, 'override 1'])
  assert.deepEqual(settings.of('retry', 'default', [0]), ['of search', 'override 0'])
  assert.deepEqual(settings.of('breaker', 'cautious', [0, 1]), ['plain', 'default'])
  assert.deepEqual(settings.of('hedge', 'default', []), [undefined, 'default'])
})

test('the last override with an effect of a tool decides about the effect', () => {
  assert.equal(settings.effectOf([0, 1, 2]), 'read_only')
  assert.equal(settings.effectOf([0, 2]), 'write')
  assert.equal(settings.effectOf([2]), undefined)
})

test('requests with certain overrides may exist while the config has exactly these overrides for their server', () => {
  const config = (...matches: object[]) => ({ defaults: {}, overrides: matches.map((match) => ({ match })) })
  const [methods, server, tool] = [{ method: 'resources/*' }, { server: 's' }, { server: 's', tool: 't' }]
  const names = (...matches: object[]) => matches.map((match) => JSON.stringify(match))
  const before = new Settings(config(methods, tool))
  assert.deepEqual(before.namesOf(before.appliedTo('s', 'resources/read', undefined)), names(methods))
  assert.ok(mayApply(config(tool, methods), 's', names(methods)))
  assert.ok(mayApply(config(methods), 's', []))
  assert.ok(!mayApply(config(tool), 's', names(methods)))
  assert.ok(!mayApply(config(methods, server), 's', names(methods)))
  assert.ok(mayApply(config(methods, server), 's', names(methods, server)))
  assert.ok(mayApply(config(methods, server), 'another', names(methods)))
})

test('an arm has the settings of its set, and a part of what a server gets; the rest is for calls in none', () => {
  const arms = {
    'canary/control': { set: 'default', takes: (server: string) => server === 'search', share: 0.4 },
    'canary/treatment': { set: 'cautious', takes: (server: string) => server === 'search', share: 0.5 },
  }
  const divided = new Settings({
    defaults: { retry: 'plain' },
    overrides: [],
    sets: { cautious: { retry: 'cautious' } },
    arms,
  })
  assert.deepEqual([...divided.arms], Object.keys(arms))
  assert.deepEqual(divided.of('retry', 'canary/control', []), ['plain', 'default'])
  assert.deepEqual(divided.of('retry', 'canary/treatment', []), ['cautious', 'set cautious'])
  assert.deepEqual(
    ['canary/control', 'canary/treatment', 'default'].map((set) =>
      Number(divided.shareOf(set, 'search').toFixed(6)),
    ),
    [0.4, 0.5, 0.1],
  )
  assert.equal(divided.shareOf('default', 'other'), 1)
  assert.equal(divided.setAt('canary/treatment', 'search'), 'canary/treatment')
  assert.equal(divided.setAt('canary/treatment', 'other'), 'default')
  assert.equal(divided.setAt('cautious', 'other'), 'cautious')
})
