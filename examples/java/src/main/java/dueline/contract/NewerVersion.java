package dueline.contract;

/** The record is of a later version of the contract: leave it where it is, and upgrade. */
public final class NewerVersion extends Exception {
    public NewerVersion(int version) {
        super("upgrade this consumer: the message is of version " + version);
    }
}
