import assert from 'node:assert/strict'
import { test } from 'node:test'
import { demo } from '../../src/commands/demo.ts'

async function run(args: readonly string[], env: Record<string, string> = {}) {
  const lines: string[] = []
  const errors: string[] = []
  const out = { stdout: (line: string) => lines.push(line), stderr: (line: string) => errors.push(line) }
  const code = await demo(args, out, env)
  return { code, lines, errors }
}

test('the demo shows that two percent of failing calls fail one task in seven, and that retries recover them', async () => {
  const { code, lines } = await run([])
  assert.equal(code, 0)
  const [without, having] = lines
  assert.match(without ?? '', /^no resilience {3}TCAF=8\.0 {2}TCSR=0\.98 {2}ETA=0\.98 {2}blast_radius=/)
  assert.equal(having, 'with resilience TCAF=8.0  TCSR=1.00  ETA=1.00  blast_radius=0.00')
  // 99.9 % of 200 tasks, each of which fails with 1 - 0.98^8.
  const failed = Number(without?.slice(-4))
  assert.ok(failed > 0.066 && failed < 0.232, without)
})

test('the demo takes another load, and is refused in production', async () => {
  const { lines } = await run(['--tasks', '3', '--fan-out', '2', '--rate', '1'])
  assert.match(lines[0] ?? '', /TCAF=2\.0 {2}TCSR=0\.00 {2}ETA=0\.00 {2}blast_radius=1\.00$/)
  const refused = await run(['--tasks', '1'], { NODE_ENV: 'production' })
  assert.equal(refused.code, 1)
  assert.match(refused.errors.join(), /NODE_ENV/)
})
