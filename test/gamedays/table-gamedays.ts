import type { GameDayRecord } from '../../src/gamedays/record.ts'
import { BEGAN, doneBy, gameDayOf, notRun, planOf, runOf } from './report-fixtures.ts'

const silent = runOf('run-3', 'silent', {
  recovery: { ...runOf('x', 'silent').recovery!, recoveredAfterMs: undefined },
})
const promising = runOf('run-4', 'slow')
const unpromised = {
  ...promising,
  spec: { ...promising.spec, recovery: { ...promising.spec.recovery, rto: undefined } },
}

/** GameDays in which every column of their tables occurs, with nulls in all columns that allow nulls. */
export const tableGameDays: readonly GameDayRecord[] = [
  gameDayOf({
    observations: [
      { at: BEGAN + 0.25, by: 'carol', text: 'agents "wait", ünï\ncode', step: 'slow' },
      { at: BEGAN + 1, by: 'carol', text: 'calm', step: undefined },
    ],
    actions: [
      {
        number: 1,
        at: BEGAN,
        by: 'carol',
        what: 'mend, the retry',
        owner: 'platform',
        due: '2026-12-24',
        done: { at: BEGAN + 1_000, by: 'dave' },
      },
      { number: 2, at: BEGAN, by: 'carol', what: 'x', owner: 'y', due: undefined, done: undefined },
    ],
  }),
  gameDayOf({
    id: 'gd-mfa1b2c4-0123abcd',
    state: 'paused',
    endedAt: undefined,
    plan: planOf({}, ['silent', 'left']),
    steps: [doneBy(silent), notRun('left', { note: 'the gateway ended', runs: ['run-9'] })],
    pauses: [{ from: BEGAN, until: undefined, by: 'bob', why: 'a break' }],
  }),
  gameDayOf({
    id: 'gd-mfa1b2c5-0123abcd',
    plan: planOf({}, ['slow', 'left']),
    steps: [doneBy(unpromised), notRun('left')],
  }),
]
