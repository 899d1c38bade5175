import { edgeTarget } from '../edge.ts'
import { replyTargets as llhttpReplyTargets } from '../llhttp/replies.ts'
import { requestTarget } from '../llhttp/requests.ts'
import { breakerTarget } from '../models/breaker.ts'
import { idempotencyTargets } from '../models/idempotency.ts'
import { limitTargets } from '../models/limits.ts'
import { registryTarget } from '../models/registry.ts'
import { sessionTargets } from '../models/sessions.ts'
import type { Target } from '../target.ts'
import { headerTargets } from './headers.ts'
import { jsonTargets } from './json.ts'
import { largeMessageTargets } from './large-messages.ts'
import { lineTargets } from './lines.ts'
import { nameTargets } from './names.ts'
import { fileTargets } from './files.ts'
import { opaqueTargets } from './opaque.ts'
import { replyTargets } from './replies.ts'
import { sseTargets } from './sse.ts'

/** All properties: add a line here for a new property. */
export const targets: readonly Target[] = [
  ...jsonTargets,
  ...largeMessageTargets,
  ...sseTargets,
  ...lineTargets,
  ...headerTargets,
  ...nameTargets,
  ...replyTargets,
  ...fileTargets,
  ...opaqueTargets,
  breakerTarget,
  ...limitTargets,
  ...idempotencyTargets,
  ...sessionTargets,
  registryTarget,
  requestTarget,
  ...llhttpReplyTargets,
  edgeTarget,
]
