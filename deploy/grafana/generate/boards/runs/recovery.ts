import { none } from '../../colours.ts'
import { lines, stat, table } from '../../panels.ts'
import { query } from '../../query.ts'
import { ofPlan, PLAN } from './chosen.ts'

const [measured, promised] = ['recovery', 'promised_recovery'].map(
  (name) => `breakwater_plan_${name}_duration_seconds${PLAN}`,
)

/** Judged at each gateway: the recovery at a gateway does not hide that a run of another gateway did not recover. */
const broken = `max by (plan, kind) ((${measured} > ${promised}) or (${promised} unless ${measured}))`

const recovery = ofPlan('recovery_duration_seconds')
const promise = ofPlan('promised_recovery_duration_seconds')

export const recoveries = [
  stat({
    title: 'Broken promises',
    about:
      'Plans whose last run that is evidence recovered later than `recovery.rto` promises, or not at all. Find the layer in `breakwater runs show`, or promise less.',
    width: 6,
    steps: none,
    queries: [query(`count(${broken}) or vector(0)`, 'broken')],
  }).height(8),
  lines({
    title: 'Time to recover, and the promise',
    about:
      'Of the last run that is evidence, at each time. A line above its promise is a broken promise; a line that ends while its promise goes on means a run without a recovery. A slow rise is a drift: ask `breakwater runs trend`.',
    unit: 's',
    width: 9,
    queries: [query(recovery, '{{plan}} ({{kind}})'), query(promise, '{{plan}} ({{kind}}) promised')],
  }),
  table({
    title: 'Recovery against the promise',
    about:
      'Of the last run that is evidence. Without a time in the first column, this run did not recover. Look first at plans with a time in the last column.',
    unit: 's',
    width: 9,
    queries: [
      query(`${recovery} and ${promise}`, 'recovered in'),
      query(promise, 'promised'),
      query(`max by (plan, kind) (${measured} - ${promised} > 0)`, 'late by'),
    ],
  }),
]
