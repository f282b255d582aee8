"""Guards of `config`."""

from __future__ import annotations

from tests.proof.guard import of

DATABASE = "tests/config/database"
KAFKA = "tests/config/kafka"
PARTITIONS = "tests/config/partitions"

GUARDS = [
    *of(
        "config/kafka/positions.py",
        f"{KAFKA}/test_positions.py",
        (
            "a topic that was created again is not gone on with",
            "if mark.topic_id and log.topic_id and mark.topic_id != log.topic_id:",
            "if False:",
        ),
        (
            "the smaller of committed offset and watermark wins",
            "else min(mark.next_offset, log.committed)",
            "else mark.next_offset",
        ),
        ("a restored database reads the gap again", "else min(mark.next_offset, log.committed)", "else log.committed"),
        ("what retention has taken is an alarm", "    if offset < log.begin:\n", "    if False:\n"),
        (
            "an old committed offset stops nobody whose watermark is in the log",
            "    if log.committed is not None and log.committed < log.begin <= mark.next_offset:\n",
            "    if False:\n",
        ),
        ("a log that ends before what was read is an alarm", "    if offset > log.end:\n", "    if False:\n"),
        (
            "a partition that was always empty has the topic's id",
            "if known and log.topic_id not in known and (mark is None or not mark.topic_id):",
            "if False:",
        ),
        (
            "a log that was cut off closes no gap",
            "end = log.committed and min(log.committed, log.end)",
            "end = log.committed",
        ),
    ),
    *of(
        "config/kafka/consumer/writer.py",
        f"{KAFKA}/test_writer.py {KAFKA}/test_writers.py {KAFKA}/test_verdicts.py",
        (
            "records and position are one transaction",
            "            with transaction.atomic():\n                now = database_now()\n                self.handler.write(batch, now)",
            "            if True:\n                now = database_now()\n                self.handler.write(batch, now)",
        ),
        (
            "an abandoned batch is not committed",
            "        if not self._abandon.is_set():\n            self.done.put(Done(sequence",
            "        if True:\n            self.done.put(Done(sequence",
        ),
        ("a batch that fails is halved", "if remedy in (Remedy.DATA, Remedy.BUG):", "if False:"),
        ("only data and bugs are halved", "if remedy in (Remedy.DATA, Remedy.BUG):", "if True:"),
        (
            "a record that cannot be parked is not skipped",
            "                self._prepare_rerun(Remedy.WAIT, attempt, failure)\n",
            "                return\n",
        ),
        (
            "a missing partition is made",
            "            self._try_repair()\n        self.waiting",
            "            pass\n        self.waiting",
        ),
        ("a partition is with one writer", "writer = self._under_way(tp) or min(", "writer = min("),
        (
            "a partition stays with its writer while a batch is under way",
            "return writer if writer and writer.finished < sequence else None",
            "return None",
        ),
        (
            "batches are done in their order",
            "while self.done_sequence + 1 in self._ahead:",
            "while self._ahead and not (self._ahead.add(self.done_sequence + 1)):",
        ),
        ("a log end that is not reached is not caught up", "now - age if end.caught_up else None", "now - age"),
        ("the log was looked at a moment ago", "now - age if", "now if"),
        (
            "a beat that came while the writer was busy is not lost",
            "self._late_beat = {**self._late_beat, **ends}",
            "pass",
        ),
    ),
    *of(
        "config/kafka/consumer/database.py",
        f"{KAFKA}/test_placing.py {KAFKA}/test_log_ends.py",
        (
            "nothing is placed before the batches in hand are written",
            "if not self.backend.drain(patience=LIMIT / 2):",
            "if False:",
        ),
        ("after a gap what was sent is looked for", "        if any(gaps.values()):\n", "        if False:\n"),
        (
            "a topic that was created again shows in any of its partitions",
            "marks = of_one_topic(marks, logs)",
            "marks = dict(marks)",
        ),
        (
            "a stop stands until it is accepted",
            "if isinstance(start, Stopped) and self.accept_reset:",
            "if isinstance(start, Stopped):",
        ),
        (
            "a committed offset that is pending is waited for",
            "            self.logged = True\n            return None\n",
            "            self.logged = True\n            committed = {}\n",
        ),
        (
            "an offset of a partition that was taken away is not committed",
            "mine = [tp for tp in self.consumer.assignment() if self._is_there(tp, new.get(tp))]",
            "mine = [client.TopicPartition(*tp) for tp in new]",
        ),
        (
            "an offset in a topic that was created again is not committed",
            'return not mark.topic_id or internals.topic_id_of(self.consumer, tp.topic) in ("", mark.topic_id)',
            "return True",
        ),
        (
            "what was passed commits nothing back",
            "return written is None or written.topic_id != mark.topic_id or written.next_offset < mark.next_offset",
            "return True",
        ),
    ),
    *of(
        "config/kafka/consumer/loop.py",
        f"{KAFKA}/test_consumer.py {KAFKA}/test_pausing.py {KAFKA}/test_log_ends.py {KAFKA}/test_doubted.py",
        (
            "nothing behind a part that was not written is written",
            "                left = [record for _to, rest in parts[number:] for record in rest]\n                self.member.start_over({(record.topic, record.partition) for record in left})\n                return\n",
            "                continue\n",
        ),
        (
            "a batch of a partition that was taken away is not written",
            "if self.stop.is_set() or not self.member.owned().issuperset(batch.ends):",
            "if self.stop.is_set():",
        ),
        (
            "a doubted partition is not placed",
            "waiting = (self.member.unplaced & self.member.owned()) - self.member.doubted.keys()",
            "waiting = self.member.unplaced & self.member.owned()",
        ),
        ("a stop is doubted before it is raised", "if isinstance(start, Start) and not start.accepts:", "if True:"),
        ("a stop is stored before it is raised", "if believed and self.placing.confirmed(believed):", "if believed:"),
        (
            "a partition that is given up is finished first",
            "while self.backend.busy and time.monotonic() < limit:",
            "while False:",
        ),
        (
            "an end is reached when everything below is written",
            "if watch.sequence is not None and watch.sequence <= done_sequence:",
            "if watch.sequence is not None:",
        ),
        (
            "an end that is not read is not reached",
            "if (position := self.consumer.position(tp)) >= watch.end_offset:",
            "if (position := self.consumer.position(tp)) >= 0:",
        ),
        ("what is in hand is not passed", "or records_end is None or tp in in_hand:", "or records_end is None:"),
    ),
    *of(
        "config/kafka/consumer/membership.py",
        f"{KAFKA}/test_consumer.py {KAFKA}/test_pausing.py {KAFKA}/test_doubted.py {KAFKA}/test_unreadable.py {KAFKA}/test_removed.py",
        ("a member that slept raises no alarm", "if at < heard}", "}"),
        ("what rests gives no records", "if tp not in resting for r in part]", "for r in part]"),
        (
            "a batch that nobody can read stops its partition after some tries",
            "        if tries < TRIES:\n",
            "        if True:\n",
        ),
        ("a damaged batch is fetched again", "        if tries < TRIES:\n", "        if False:\n"),
        (
            "a truncated log stops its partition",
            "            self.start_over({place})\n            since",
            "            continue\n            since",
        ),
        ("more partitions are told", "            if now and first and now != first:\n", "            if False:\n"),
    ),
    *of(
        "config/kafka/transactional_producer.py",
        f"{KAFKA}/test_verdicts.py {KAFKA}/test_transaction.py",
        ("nobody commits offsets without being a member", "if metadata.generation_id < 0:", "if False:"),
        ("a name that another has builds no producer", 'if holder not in ("", member.member_id):', "if False:"),
        ("a right that is missing makes no letter", "            raise denied\n", "            pass\n"),
        (
            "a record that no request can carry is refused",
            "if len(record) + OVERHEAD > client.MAX_REQUEST_BYTES:",
            "if False:",
        ),
        (
            "a verdict other than committed aborts",
            "                self._abort(deadline)\n                return verdict\n",
            "                return verdict\n",
        ),
        (
            "an answer that does not come is unknown",
            "            self._dead = self._dead or one_line(error)[:500]\n            log",
            "            return Committed()\n            log",
        ),
    ),
    *of(
        "config/kafka/producer.py",
        f"{KAFKA}/test_producer.py",
        (
            "one that is refused hides no other",
            "self._send_alone(message, until) if isinstance(outcome, _Fatal) else outcome",
            "Refused(outcome.error) if isinstance(outcome, _Fatal) else outcome",
        ),
        ("an unusable client is discarded", "            self._discard()  # the next", "            pass  # the next"),
    ),
    *of(
        "config/database/upsert.py",
        f"{DATABASE}/test_upsert.py",
        (
            "rows that another dialect packed are packed again",
            "if isinstance(rows, Packed) and rows.dialect is dialect:",
            "if isinstance(rows, Packed):",
        ),
    ),
    *of(
        "config/database/dialects/base.py",
        "tests/buffer/ingest/test_handler.py",
        (
            "a known row that the guard refuses is left alone",
            'where = f" WHERE {guard}" if guard else ""',
            'where = ""',
        ),
        (
            "an update keeps its guard",
            "where += [self._guarded(change, at)] if change.guard else []",
            "pass",
            "tests/buffer/flush/test_publish.py",
        ),
    ),
    *of(
        "config/database/retry.py",
        f"tests/config/test_small_parts.py {DATABASE}/test_idle_transactions.py tests/config/processes/test_lost_sessions.py {KAFKA}/test_writer.py",
        ("a stale row is read again", '1213, 1205, 1467, "locked", "stale"}', '1213, 1205, 1467, "locked"}'),
        (
            "a lost session inside a transaction stays",
            "        if not session.in_atomic_block:\n",
            "        if True:\n",
        ),
        (
            "a missing partition is no bad row",
            'if code in NO_PARTITION or (code == "23514" and not _constraint(error)):',
            "if False:",
        ),
        (
            "only a unique key is a duplicate",
            'return code in ("23505", 1062) or "UNIQUE constraint failed" in str(error)',
            "return True",
        ),
    ),
    *of(
        "config/gate.py",
        "tests/config/test_gate.py",
        (
            "a value that is too large is refused",
            "if len(value) > self.max_bytes:\n            raise",
            "if False:\n            raise",
        ),
        (
            "a record without a value is refused",
            "        if not value:\n            raise",
            "        if False:\n            raise",
        ),
        (
            "what is nested too deep is refused",
            'if value.count(b"{") + value.count(b"[") > MAX_DEPTH and depth_of(value) > MAX_DEPTH:',
            "if False:",
        ),
        ("U+0000 is refused", 'if b"\\\\" in value and NUL_ESCAPE in value and _has_nul(value):', "if False:"),
        ("an escaped backslash is no U+0000", "and _has_nul(value):", ":"),
        (
            "what is no UTF-8 is refused",
            "            value.decode()\n        except UnicodeDecodeError as error:\n            raise",
            "            pass\n        except UnicodeDecodeError as error:\n            raise",
        ),
        (
            "an excerpt is no message",
            "        if isinstance(value, Excerpt):\n            text",
            "        if False:\n            text",
        ),
        (
            "an edited copy is not opened again",
            "Excerpt | EditedCopy)",
            "Excerpt)",
            "tests/buffer/ingest/test_formats.py",
        ),
    ),
    *of(
        "config/payload.py",
        f"{KAFKA}/test_unpack.py",
        ("what is too large to keep is an excerpt", "or len(value) <= WHOLE_BYTES:", "or True:"),
    ),
    *of(
        "config/telemetry/redaction.py",
        "tests/config/telemetry/test_redaction.py tests/config/test_masks.py tests/config/telemetry/test_visible.py",
        ("an error repeats no row", "text = f\"{ROW.sub('', text)}\\0\"", 'text = f"{text}\\0"'),
        ("an error repeats no value", 'text = f"{text[:start]}…{text[end + 1 :]}"', "pass"),
        (
            "a line names no address",
            'ESCAPED.sub("<address>", ADDRESS.sub("<address>", text))',
            'ESCAPED.sub("<address>", text)',
        ),
        (
            "an address in another spelling is one",
            'ESCAPED.sub("<address>", ADDRESS.sub("<address>", text))',
            'ADDRESS.sub("<address>", text)',
        ),
        (
            "a cause repeats no value",
            "            text = text.replace(str(error), hide(error_text(error)))\n",
            "            pass\n",
        ),
        ("what others wrote names no secret", 'SECRET.sub("<secret>", text))', "text)"),
        ("a path names no secret", 'SECRET.sub("<secret>", url).split("/")', 'url.split("/")'),
        (
            "what others wrote has no query",
            'text = PATH_QUERY.sub(r"\\1", URL_QUERY.sub(r"\\1", without_values(text)))',
            "text = without_values(text)",
        ),
        (
            "only a readable path is read",
            "json.dumps(value if may_read(path) and _is_plain(value) else DOTS",
            "json.dumps(value if _is_plain(value) else DOTS",
        ),
        (
            "a sentence in a readable place is dots",
            "json.dumps(value if may_read(path) and _is_plain(value) else DOTS",
            "json.dumps(value if may_read(path) else DOTS",
        ),
        ("an unknown name is dots", "json.dumps(name if inner in known else DOTS", "json.dumps(name"),
        ("a name that looks like a path is unknown", 'name = name if NAME.fullmatch(name) else "\\0"', "pass"),
        (
            "what is no JSON is dots",
            "    except (ValueError, RecursionError):\n        return DOTS",
            "    except (ValueError, RecursionError):\n        return str(payload)",
        ),
        (
            "a name that stands twice shows neither",
            "object_pairs_hook=Pairs)",
            "object_pairs_hook=lambda pairs: Pairs(dict(pairs).items()))",
        ),
        ("an error text keeps no quoted value", "QUOTED.sub(DOTS, text.replace(", "str(text.replace("),
        ("a setting is named without its value", 'return f"{name}={DOTS}{word[len(bare) :]}"', "return word"),
        ("a stranger begins no line", 'return visible(str(text), kept="")', "return visible(str(text))"),
    ),
    *of(
        "config/partitions/drivers.py",
        f"{PARTITIONS}/test_sqlite.py {PARTITIONS}/test_plan.py {PARTITIONS}/test_rotation.py tests/buffer/test_retention.py",
        ("rows are counted where they are deleted", "            self.release(chunk)\n", "            pass\n"),
    ),
    *of(
        "config/partitions/rotation.py",
        f"{PARTITIONS}/test_plan.py {PARTITIONS}/test_rotation.py {PARTITIONS}/test_sqlite.py",
        ("what waits keeps its partition", "    if count := unfinished(partition):\n", "    if count := 0:\n"),
        ("what is within retention is kept", "if oldest is None or partition.upper > oldest:", "if oldest is None:"),
        (
            "a partition that somebody else made is kept",
            '    if partition.upper is None:\n        return Step("keep"',
            '    if False:\n        return Step("keep"',
        ),
        ("a run without drops drops nothing", 'if step.action == "drop" else step\n', "if False else step\n"),
        ("a dry run changes nothing", "plans.append(plan if dry_run else apply(plan))", "plans.append(apply(plan))"),
    ),
    *of(
        "config/environment/env.py",
        "tests/config/environment/test_env.py",
        (
            "a URL with a login is not repeated",
            'if not known or "@" in parts.path + parts.query + parts.fragment:',
            "if not known:",
        ),
        ("a number outside its bounds is refused", "if not least <= number <= most:", "if False:"),
        (
            "what the process says goes before .env",
            "os.environ.setdefault(name, value)",
            "os.environ.update({name: value})",
        ),
        (
            "a quotation mark that is not closed is refused",
            "    if not (quoted := QUOTED.fullmatch(text.strip())):\n        raise",
            "    if not (quoted := QUOTED.fullmatch(text.strip())):\n        return name, text\n        raise",
        ),
    ),
    *of(
        "config/admin/levers.py",
        "tests/config/admin/test_confirmation.py tests/config/admin/test_pages.py",
        ("a reason is more than a character", 'TOO_SHORT.format(least) if given < least else ""', '""'),
        ("a reason is required", "return MISSING if not given else", 'return "" if not given else'),
        (
            "who has no right pulls no lever",
            'return bool(user.has_perm(f"{opts.app_label}.{self.right}"))',
            "return True",
        ),
    ),
]
