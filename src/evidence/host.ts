import { existsSync } from 'node:fs'
import { cpus, totalmem } from 'node:os'
import { hashOf } from '../experiments/guarded/spec.ts'
import type { RunSummary } from './summary.ts'

/** Returns the facts about this machine by which runs are comparable. */
export function hostFacts(): RunSummary['host'] {
  const all = cpus()
  const facts = {
    cpu: all[0]?.model ?? 'unknown',
    cores: all.length,
    memoryBytes: totalmem(),
    node: process.versions.node,
    container: existsSync('/.dockerenv') || existsSync('/run/.containerenv'),
  }
  return { class: hashOf(facts), ...facts }
}
