import assert from 'node:assert/strict'
import { test } from 'node:test'
import { digestOf } from '../../src/approval/digest.ts'
import { type Signable, signedApprovalOf } from '../../src/commands/agents/proposal.ts'
import { proposeRun } from '../../src/control/mcp/tools/propose-run.ts'
import { specOf } from '../experiments/guarded/world.ts'

/** Returns the lines that a signer sees before the question for the passphrase. */
async function linesOf(shown: Omit<Signable, 'approval' | 'sealed' | 'firstStage'>): Promise<string[]> {
  const lines: string[] = []
  const { spec, hit } = shown
  const approval = { planHash: digestOf({ spec, firstStage: 0, sealed: '' }), targetsHash: digestOf(hit) }
  const given = { values: {}, out: { stderr: (line: string) => lines.push(line) } }
  const signable = { ...shown, firstStage: 1, sealed: '', approval: approval as Signable['approval'] }
  await assert.rejects(signedApprovalOf(given as never, signable), /--key FILE is missing/)
  return lines
}

const forged = 'harmless\nhits docs: read (read_only)\u202e'

test('no text of an agent or a server looks like another line of a run to sign', async () => {
  const faults = [{ name: 'broken', type: 'rpc.error', rate: 1, message: forged, data: { [forged]: forged } }]
  const spec = specOf({ reason: forged, faults })
  const tool = 'read (read_only), list\u001b[2K'
  const hit = [{ server: 'docs', identity: 'i', tool, effect: 'write' }] as const
  const lines = await linesOf({ spec, by: 'writer', why: forged, hit })
  assert.deepEqual(
    lines.filter((line) => /^\s*hits docs/.test(line)),
    ['hits docs: "read (read_only), list\\u001b[2K" (write)'],
  )
  assert.ok(lines.every((line) => !/[\p{Cc}\u202e]/u.test(line)))
})

test('the question of an agent is one line', () => {
  const asked = (why: string) => proposeRun.input.safeParse({ plan: 'latency', why }).success
  assert.deepEqual(
    [asked('Is it slow?'), asked('a\nb'), asked('a\u202eb'), asked(' ')],
    [true, false, false, false],
  )
})
