import assert from 'node:assert/strict'
import { test } from 'node:test'
import { cells } from '../../bench/full/cells.ts'
import { inCell, onlyPolicy, policyRows } from '../../bench/full/rows.ts'
import { commandOf, readOptions } from '../../bench/full/options.ts'
import { peers } from '../../bench/full/peers.ts'
import { foreignIn } from '../../bench/full/ports.ts'
import { waysOf } from '../../bench/full/ways.ts'
import { subjects } from '../../bench/subjects.ts'
import { policies } from '../../src/policies/index.ts'

const stdio = { command: 'node', args: ['server.js'] }
const cellNamed = (name: string) => cells.find((cell) => cell.name === name)!

test('the matrix differs from its base in one thing at a time, and stays within its limits', () => {
  const [base, ...others] = cells
  const keys = ['era', 'reply', 'fill', 'sessions', 'upstream'] as const
  for (const cell of others.filter(({ name }) => name !== 'policies'))
    assert.equal(keys.filter((key) => cell[key] !== base![key]).length, 1, cell.name)
  assert.ok(cells.every(({ sessions }) => sessions >= 1 && sessions <= 1_000))
})

test('every policy has a row with this policy alone, under valid settings', () => {
  assert.deepEqual(
    policyRows.map(({ name }) => name),
    ['no-policy', ...Object.keys(policies)],
  )
  for (const [name, { schema }] of Object.entries(policies)) {
    const { defaults } = onlyPolicy(name).policies as { defaults: Record<string, unknown> }
    const on = Object.entries(defaults).filter(([, setting]) => setting !== false)
    assert.deepEqual(
      on.map(([policy]) => policy),
      [name],
    )
    // A policy whose defaults are no settings needs a line in policy-rows.ts.
    assert.doesNotThrow(() => schema.parse(defaults[name]), name)
  }
})

test('other gateways run in front of the kinds of servers that they support', () => {
  const others = { nginx: 'nginx/1.0', peers }
  const names = (cell: string) => waysOf(cellNamed(cell), others, stdio).map(({ name }) => name)
  assert.ok(names('base').includes('nginx'))
  assert.ok(names('base').includes('@civic/passthrough-mcp-server'))
  assert.ok(!names('base').includes('supergateway'))
  assert.ok(!names('stdio').includes('nginx'))
  assert.ok(names('stdio').includes('supergateway'))
  assert.ok(names('stdio').includes('server'))
  assert.ok(!names('sessions-1000').some((name) => peers.some((peer) => peer.name === name)))
  assert.equal(waysOf(cellNamed('base'), { nginx: undefined, peers: [] }, stdio)[0]?.name, 'direct')
})

test('each other gateway has one version', () => {
  for (const { version } of peers) assert.match(version, /^\d+\.\d+\.\d+$/)
})

test('many sessions get more slots, unless there is no bulkhead; a stdio server replaces the HTTP server', () => {
  const named = (name: string) => subjects.find((subject) => subject.name === name)!
  const configOf = (name: string, cell: string) => {
    const { middle } = inCell(named(name), cellNamed(cell), stdio)
    assert.ok(typeof middle === 'function')
    return middle('http://127.0.0.1:1') as {
      policies?: { defaults?: { bulkhead?: unknown } }
      mcpServers?: unknown
    }
  }
  assert.equal(configOf('server', 'base').policies, undefined)
  assert.deepEqual(configOf('server', 'sessions-128').policies?.defaults?.bulkhead, { concurrent: 512 })
  assert.equal(configOf('bare', 'sessions-128').policies?.defaults?.bulkhead, false)
  assert.deepEqual(configOf('server', 'stdio').mcpServers, { upstream: stdio })
  assert.equal(inCell(named('modern'), cellNamed('base'), stdio).era, 'modern')
})

test('sockets of a process that listen elsewhere than at loopback are found', () => {
  const line = (local: string, state: string, inode: string) =>
    `   0: ${local}:1F90 00000000:0000 ${state} 00000000:00000000 00:00000000 00000000     0        0 ${inode} 1 0`
  const table = [
    '  sl  local_address rem_address   st tx_queue rx_queue tr tm->when retrnsmt   uid  timeout inode',
    line('0100007F', '0A', '1'),
    line('00000000', '0A', '2'),
    line('00000000', '0A', '3'),
    line('00000000', '01', '1'),
    line('00000000000000000000000001000000', '0A', '1'),
  ].join('\n')
  assert.deepEqual(foreignIn(table, new Set(['1'])), [])
  assert.deepEqual(foreignIn(table, new Set(['1', '2'])), ['00000000:1F90'])
})

test('options select cells in the order of the matrix; a quick run has some of the cells', () => {
  assert.deepEqual(
    readOptions(['--cell', 'sse', '--cell', 'base']).cells.map(({ name }) => name),
    ['base', 'sse'],
  )
  assert.equal(readOptions([]).cells.length, cells.length)
  const quick = readOptions(['--quick'])
  assert.ok(quick.cells.length < cells.length)
  assert.ok(quick.minutes < readOptions([]).minutes)
  assert.equal(readOptions(['--no-peers']).peers, false)
  assert.throws(() => readOptions(['--cell', 'none']), /expected base, modern/)
  assert.throws(() => readOptions(['--minutes', '0']), /from 1 to 120/)
})

test('the name of a run holds its request, without output files', () => {
  assert.equal(commandOf([]), 'npm run bench:full')
  assert.equal(commandOf(['--json', 'x.json', '--quick', '--page', 'a.md']), 'npm run bench:full -- --quick')
})
