import { type Judgement, unproven } from '../../evidence/verdict.ts'
import { reasonTexts } from '../../evidence/verdict-names.ts'

/** Returns the verdict on a run, and a line for each reason against a proof. */
export const verdictLines = ({ verdict, reasons, claims }: Judgement): readonly string[] => [
  `verdict: ${verdict}`,
  ...reasons.map((reason) => `  ${reason}: ${reasonTexts[reason]}`),
  ...(verdict === 'held (weak)' ? unproven(claims).map((claim) => `  not proven: ${claim}`) : []),
]
