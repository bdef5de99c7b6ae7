/* topics.h - texts about methods, formats and the program, for `oneshot help TOPIC`. */
#ifndef OSH_TOPICS_H
#define OSH_TOPICS_H

typedef struct osh_topic {
    const char *name, *also; // also: another name, or NULL
    /* does: line about the topic in the list of topics. text: the topic, without a newline at the
     * end. */
    const char *does, *text;
} osh_topic;
extern const osh_topic osh_topics[];            // a row whose name is NULL ends the table
/* Returns the topic called `name` (ignoring case), or NULL. */
const osh_topic *osh_topic_find(const char *name);
#endif
