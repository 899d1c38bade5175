import assert from 'node:assert/strict'
import { test } from 'node:test'
import { scenario } from '../../src/commands/break/scenario.ts'

/** Returns the exit code and the output of the command. */
async function said(...args: readonly string[]) {
  const lines: string[] = []
  const say = (line: string) => void lines.push(line)
  return { code: await scenario(args, { stdout: say, stderr: say }, {}), lines }
}

test('arguments that make no sense are named', async () => {
  const misuses: readonly (readonly [RegExp, ...string[]])[] = [
    [/: expected list, or run NAME\n/],
    [/: expected list, or run NAME\n/, 'list', 'all'],
    [/: expected list, or run NAME\n/, 'play', 'one'],
    [/NAME is missing/, 'run'],
    [/"all" runs every scenario/, 'run', 'all', 'hang'],
    [/--loud/, 'run', 'one', '--loud'],
    [/--control must be .*"8081"/, 'run', 'one', '--control', '8081'],
    [/--duration: .* from 1s/, 'run', 'one', '--duration', 'soon'],
    [/--duration: .* from 1s/, 'run', 'one', '--duration', '999ms'],
    [/at least 1/, 'run', 'hang', '--traffic', '0'],
    [/from 0 to 100/, 'run', 'hang', '--traffic', '101'],
    [/--no-traffic excludes --traffic/, 'run', 'hang', '--no-traffic', '--tool', 'a'],
    [/--no-traffic excludes --traffic/, 'run', 'hang', '--no-traffic', '--traffic', '1'],
  ]
  for (const [expected, ...args] of misuses) {
    const { code, lines } = await said(...args)
    assert.equal(code, 2, args.join(' '))
    assert.match(lines.join('\n'), expected)
  }
})

test('help comes before all else that is asked for', async () => {
  const { code, lines } = await said('run', '--help')
  assert.equal(code, 0)
  assert.match(lines.join('\n'), /^breakwater scenario: /)
})

test('the list says which scenarios show nothing over stdio', async () => {
  const { code, lines } = await said('list')
  assert.equal(code, 0, lines.join('\n'))
  const limited = (mark: string) =>
    lines.filter((line) => line.endsWith(` (Servers over ${mark} only.)`)).map((line) => line.split(' ')[0])
  assert.deepEqual(limited('http or sse'), [
    'dependency-then-outage',
    'outage-and-recovery',
    'rate-limited',
    'token-expired',
    'upstream-503',
  ])
  assert.deepEqual(limited('http'), ['malformed-replies'])
})
